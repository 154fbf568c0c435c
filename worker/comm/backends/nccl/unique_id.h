#pragma once

#include <nccl.h>
#include <string>
#include <string_view>

// By which the ranks of a communicator find each other: one of them makes it and tells the others, through the store.
namespace ddprun::comm {

ncclUniqueId make_unique_id();
std::string text_of(const ncclUniqueId& id);
// Throws Errc::usage for what is none.
ncclUniqueId unique_id_from(std::string_view text);

}  // namespace ddprun::comm
