#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"

namespace ddprun::trainer {

struct Scalar {
  std::string tag;  // such as train/loss
  double value = 0;
};

// A file for TensorBoard: TFRecords (length, CRC, data, CRC) of Event messages in protobuf's encoding, both as
// TensorFlow defines them (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto).
//
// Threads: one at a time. Errors: Errc::io naming the file.
class EventFile {
 public:
  // Makes a new file in the folder, which is made if it is missing: events.out.tfevents.<seconds>.<host>.<process>.<n>.
  // next_step: that of the first record. If above 1, as in a run that goes on from a checkpoint, TensorBoard leaves out
  // the records of that step and later ones in files before this one.
  EventFile(const std::filesystem::path& folder, std::int64_t next_step);

  void add(std::int64_t step, const std::vector<Scalar>& scalars);
  // Flushes to the disk.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view event);

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace ddprun::trainer
