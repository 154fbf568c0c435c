#include "worker/parallel/stored/model_source.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "worker/parallel/stored/part_files.h"
#include "worker/parallel/stored/stored_state.h"

namespace ddprun::stored {
namespace {

// A range of a whole tensor that follows in a rank's part, in bytes.
struct Piece {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t local = 0;
  int rank = 0;
};

std::vector<Piece> pieces_of(const sharding::PlacedTensor& tensor, const std::vector<int>& writers) {
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * size_of(tensor.spec().dtype);
  };
  std::vector<Piece> pieces;
  const auto parts = tensor.parts();
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const auto& range : parts[p].ranges)
      pieces.push_back({bytes(range.whole.begin), bytes(range.whole.end), bytes(range.local), writers[p]});
  std::ranges::sort(pieces, {}, &Piece::begin);
  return pieces;
}

// Puts tensors together from parts.
class PartsSource final : public checkpoint::TensorSource {
 public:
  PartsSource(std::filesystem::path folder, StoredState state)
      : state_(std::move(state)), files_(std::move(folder), state_) {
    std::map<std::string, std::size_t> averages;
    const auto& of_averages = state_.of(Kind::averages).tensors;
    for (std::size_t i = 0; i < of_averages.size(); ++i) averages.emplace(of_averages[i].spec().name, i);
    const auto& model = state_.of(Kind::model).tensors;
    for (std::size_t i = 0; i < model.size(); ++i) {
      const auto& spec = model[i].spec();
      const auto average = averages.find(spec.name);
      places_.push_back(average == averages.end() ? Place{Kind::model, i} : Place{Kind::averages, average->second});
      const std::uint64_t begin = infos_.empty() ? 0 : infos_.back().end;
      const auto bytes = static_cast<std::uint64_t>(spec.elements()) * size_of(spec.dtype);
      infos_.push_back({spec.name, spec.dtype, spec.shape, begin, begin + bytes});
    }
  }

  using TensorSource::read;
  const std::vector<checkpoint::TensorInfo>& tensors() const override { return infos_; }
  void read(const checkpoint::TensorInfo& info, std::uint64_t offset, std::span<std::byte> out) const override {
    const auto& place = places_[static_cast<std::size_t>(&info - infos_.data())];
    const auto& stored = state_.of(place.kind);
    const auto& tensor = stored.tensors[place.index];
    if (&tensor != of_pieces_) pieces_ = pieces_of(tensor, stored.writers[place.index]);
    of_pieces_ = &tensor;
    const auto end = offset + out.size();
    auto piece = std::ranges::upper_bound(pieces_, offset, {}, &Piece::end);
    for (; piece != pieces_.end() && piece->begin < end; ++piece) {
      const auto from = std::max(piece->begin, offset), to = std::min(piece->end, end);
      files_.read(place.kind, tensor, piece->rank, piece->local + from - piece->begin,
                  out.subspan(from - offset, to - from));
    }
  }

 private:
  struct Place {
    Kind kind;
    std::size_t index;
  };

  const StoredState state_;
  mutable PartFiles files_;
  std::vector<checkpoint::TensorInfo> infos_;
  std::vector<Place> places_;  // by tensor of infos_
  // The pieces of the tensor that was read last.
  mutable const sharding::PlacedTensor* of_pieces_ = nullptr;
  mutable std::vector<Piece> pieces_;
};

}  // namespace

std::uint64_t ModelSource::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& info : tensors->tensors()) sum += info.bytes();
  return sum;
}

ModelSource open_model(const checkpoint::Found& found) {
  if (found.has_parts) {
    auto state = stored_state_of(found);
    const bool has_averages = !state.of(Kind::averages).tensors.empty();
    return {found.folder.string(), std::make_unique<PartsSource>(found.folder, std::move(state)), has_averages};
  }
  const bool has_averages = found.has(checkpoint::ema_file);
  const auto file = found.folder / (has_averages ? checkpoint::ema_file : checkpoint::model_file);
  return {file.string(), std::make_unique<checkpoint::SafetensorsFile>(file), has_averages};
}

}  // namespace ddprun::stored
