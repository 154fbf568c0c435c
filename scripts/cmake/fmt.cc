// The one translation unit that holds the compiled part of fmt.
#define FMT_HEADER_ONLY
#include <fmt/format.h>
