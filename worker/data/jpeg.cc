#include <csetjmp>
#include <cstdio>
#include <jpeglib.h>

#include "common/error.h"
#include "worker/data/picture_formats.h"

namespace ddprun::data {
namespace {

// libjpeg reports an error by a function that must not return, and damaged data by a warning.
struct Errors {
  jpeg_error_mgr manager{};  // the first member: libjpeg knows this address
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = "";
};

void remember(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<Errors*>(jpeg->err);
  if (errors->message[0] == '\0') jpeg->err->format_message(jpeg, errors->message);
}

[[noreturn]] void give_up(j_common_ptr jpeg) {
  remember(jpeg);
  std::longjmp(reinterpret_cast<Errors*>(jpeg->err)->back, 1);
}

void record_warning(j_common_ptr jpeg, int level) {
  if (level < 0) give_up(jpeg);  // the rest of the picture would be made up
}

// A decoder that is destroyed with its memory.
struct Decoder {
  jpeg_decompress_struct jpeg{};
  Errors errors;

  Decoder() {
    jpeg.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = give_up;
    errors.manager.emit_message = record_warning;
    jpeg_create_decompress(&jpeg);
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

// The functions below hold no object with a destructor, which longjmp would skip. They return false with a message.
bool read_header(Decoder& decoder, std::span<const std::byte> bytes) {
  if (setjmp(decoder.errors.back) != 0) return false;
  jpeg_mem_src(&decoder.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder.jpeg, TRUE);
  return true;
}

bool read_rows(Decoder& decoder, std::uint8_t* levels) {
  if (setjmp(decoder.errors.back) != 0) return false;
  decoder.jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decoder.jpeg);
  while (decoder.jpeg.output_scanline < decoder.jpeg.output_height) {
    JSAMPROW row = levels + std::size_t{3} * decoder.jpeg.output_width * decoder.jpeg.output_scanline;
    jpeg_read_scanlines(&decoder.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&decoder.jpeg);
  return true;
}

}  // namespace

Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  Decoder decoder;
  const auto fail = [&] {
    return make_error(Errc::io, "{}: no JPEG that can be read: {}", name, decoder.errors.message);
  };
  if (!read_header(decoder, bytes)) throw fail();
  check_picture_size(decoder.jpeg.image_height, decoder.jpeg.image_width, name);
  Picture picture{.height = decoder.jpeg.image_height, .width = decoder.jpeg.image_width, .levels = {}};
  picture.levels.resize(static_cast<std::size_t>(3 * picture.height * picture.width));
  if (!read_rows(decoder, picture.levels.data())) throw fail();
  return picture;
}

}  // namespace ddprun::data
