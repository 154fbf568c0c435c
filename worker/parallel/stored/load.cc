#include "worker/parallel/stored/load.h"

#include <map>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/sharding/redistribute.h"
#include "worker/parallel/stored/part_files.h"
#include "worker/parallel/stored/placements_json.h"

namespace ddprun::stored {
namespace {

using Places = std::map<std::string_view, std::size_t>;

Places places_of(const StoredTensors& stored) {
  Places places;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) places.emplace(stored.tensors[i].spec().name, i);
  return places;
}

// Returns the file of the tensors, or the one that says where they lie.
std::string source_of(const StoredFiles& files, Kind kind) {
  const auto& state = files.state;
  return (files.folder / (state.is_whole() ? state.file_of(kind, 0) : checkpoint::placements_file)).string();
}

sharding::Redistribution redistribution_of(const StoredFiles& files, const StoredTensors& stored,
                                           const std::vector<sharding::PlacedTensor>& tensors, int processes) {
  const Places places = places_of(stored);
  sharding::Redistribution result;
  result.files.emplace(sharding::StateLayout{.placements = {}, .processes = files.readers});
  for (const auto& tensor : tensors) {
    const std::size_t place = places.at(tensor.spec().name);
    result.tensors.push_back(tensor.spec());
    result.to.placements.push_back(tensor.placement());
    result.files->placements.push_back(stored.tensors[place].placement());
    result.files->writers.push_back(stored.writers[place]);
  }
  result.from = {.placements = result.to.placements,
                 .processes = std::vector<int>(static_cast<std::size_t>(processes), sharding::absent)};
  return result;
}

// Returns memory of the host in place of that of devices.
std::vector<Tensor> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& tensor : tensors)
    all.push_back(tensor.defined() && tensor.device().type == DeviceType::cuda
                      ? Tensor::empty(tensor.shape(), tensor.dtype())
                      : tensor);
  return all;
}

}  // namespace

StoredFiles open_files(const checkpoint::Found& found, const checkpoint::Peers& peers) {
  const auto source = found.folder / (found.has_parts ? checkpoint::placements_file : checkpoint::model_file);
  const int reader = found.reader_of(source.filename());
  const auto texts =
      checkpoint::all_do(peers, [&] { return peers.rank == reader ? to_json(stored_state_of(found)) : std::string(); });
  StoredFiles files{.folder = found.folder,
                    .state = stored_state_from_json(texts[static_cast<std::size_t>(reader)], source.string()),
                    .readers = {}};
  for (int rank = 0; rank < files.state.ranks(); ++rank)
    files.readers.push_back(found.reader_of(files.state.file_of(Kind::model, rank)));
  PartFiles parts(files.folder, files.state);
  checkpoint::all_do(peers, [&] {
    for (int rank = 0; rank < files.state.ranks(); ++rank)
      if (files.readers[static_cast<std::size_t>(rank)] == peers.rank) parts.check(rank);
    return std::string();
  });
  return files;
}

void check_files(const checkpoint::Found& found, const checkpoint::Peers& peers) {
  open_files(found, peers);
}

void check_tensors(const StoredFiles& files, Kind kind, const std::vector<sharding::PlacedTensor>& tensors,
                   bool is_all) {
  const StoredTensors& stored = files.state.of(kind);
  const auto source = source_of(files, kind);
  if (is_all && stored.tensors.size() != tensors.size())
    throw make_error(Errc::mismatch, "{} holds {} tensors{}, this run has {}", source, stored.tensors.size(),
                     files.state.is_whole() ? ""
                     : kind == Kind::model  ? " of the model"
                                            : " of the optimizer",
                     tensors.size());
  const Places places = places_of(stored);
  for (const auto& tensor : tensors) {
    const auto& spec = tensor.spec();
    const auto place = places.find(spec.name);
    if (place == places.end()) throw make_error(Errc::mismatch, "{} has no tensor {}", source, spec.name);
    const auto& saved = stored.tensors[place->second].spec();
    if (saved.dtype != spec.dtype || saved.shape != spec.shape)
      throw make_error(Errc::mismatch, "{}: tensor {} is {} {}, this run needs {} {}", source, spec.name,
                       name_of(saved.dtype), to_string(Shape(saved.shape)), name_of(spec.dtype),
                       to_string(Shape(spec.shape)));
  }
}

void load(const StoredFiles& files, Kind kind, const LoadTarget& target, ProcessGroup& group) {
  if (target.tensors.empty()) return;
  const StoredTensors& stored = files.state.of(kind);
  const auto redistribution = redistribution_of(files, stored, target.tensors, group.size());
  const auto plan = sharding::plan_redistribution(redistribution, group.rank());
  const auto memory = on_host(target.own);
  std::vector<ConstSpan> from;
  std::vector<Span> to;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const Span none{.dtype = target.tensors[i].spec().dtype};
    from.emplace_back(none);
    to.push_back(memory[i].defined() ? span_of_tensor(memory[i]) : none);
  }
  const Places places = places_of(stored);
  PartFiles parts(files.folder, files.state);
  sharding::redistribute(redistribution, plan, from, to, group, [&](const sharding::Transfer& transfer, Span into) {
    const auto& spec = redistribution.tensors[transfer.tensor];
    parts.read(kind, stored.tensors[places.at(spec.name)], transfer.file,
               static_cast<std::uint64_t>(transfer.read_offset) * size_of(spec.dtype),
               {static_cast<std::byte*>(into.data), into.bytes()});
  });
  for (std::size_t i = 0; i < memory.size(); ++i) {
    Tensor own = target.own[i];  // a handle on the same elements
    if (!own.defined()) continue;
    if (own.device().type == DeviceType::cuda) own.copy_from(memory[i]);
    own.storage()->bump_version();
  }
}

}  // namespace ddprun::stored
