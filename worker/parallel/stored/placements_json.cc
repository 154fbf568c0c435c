#include "worker/parallel/stored/placements_json.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include <boost/json.hpp>

#include "common/error.h"
#include "common/printable.h"
#include "worker/checkpoint/json_object.h"

namespace ddprun::stored {
namespace {

namespace json = boost::json;
using checkpoint::JsonObject;
using sharding::BucketLayout;
using sharding::PlacedTensor;
using sharding::Placement;

constexpr std::array<const char*, all_kinds.size()> kind_names{"model", "optimizer", "ema"};
constexpr const char* format_name = "ddprun placements";
constexpr std::int64_t format_version = 1;
constexpr std::int64_t most_elements = std::int64_t{1} << 62;  // of a bucket: sums of two are numbers

const char* name_of_kind(Kind kind) {
  return kind_names[static_cast<std::size_t>(kind)];
}

template <class T>
json::array list_of(const std::vector<T>& values) {
  return json::array(values.begin(), values.end());
}

// Numbers the meshes and buckets, which many tensors have in common.
template <class T>
class Numbering {
 public:
  explicit Numbering(std::function<json::value(const T&)> write) : write_(std::move(write)) {}
  std::size_t number(const std::shared_ptr<const T>& object) {
    const auto [place, is_new] = numbers_.try_emplace(object.get(), written.size());
    if (is_new) written.push_back(write_(*object));
    return place->second;
  }
  json::array written;

 private:
  const std::function<json::value(const T&)> write_;
  std::map<const T*, std::size_t> numbers_;
};

json::value json_of(const MeshShape& mesh) {
  json::array axes;
  for (const auto& [name, size] : mesh.axes()) axes.push_back(json::array{name, size});
  return axes;
}

json::value json_of(const BucketLayout& bucket) {
  json::array slots;
  for (const auto& slot : bucket.slots) slots.push_back(json::array{slot.tensor, slot.offset, slot.count});
  return json::object{{"elements", bucket.elements}, {"slots", slots}};
}

json::value json_of(const sharding::Shard& shard) {
  return json::object{{"axis", shard.axis}, {"dimension", shard.dimension}, {"pieces", shard.pieces},
                      {"unit", shard.unit}, {"copies", shard.copies},       {"padded", shard.is_padded}};
}

class Writer {
 public:
  json::object write(const StoredState& state) {
    json::object all{
        {"format", format_name}, {"version", format_version}, {"ranks", state.ranks()}, {"whole", state.is_whole()}};
    json::object kinds;
    for (const Kind kind : all_kinds) {
      const StoredTensors& stored = state.of(kind);
      json::array tensors;
      for (std::size_t i = 0; i < stored.tensors.size(); ++i)
        tensors.push_back(json_of(stored.tensors[i], stored.writers[i]));
      kinds[name_of_kind(kind)] = std::move(tensors);
    }
    all["meshes"] = meshes_.written;
    all["buckets"] = buckets_.written;
    all["tensors"] = std::move(kinds);
    return all;
  }

 private:
  json::object json_of(const PlacedTensor& tensor, const std::vector<int>& writers) {
    const Placement& placement = tensor.placement();
    json::object object{{"name", tensor.spec().name},
                        {"dtype", checkpoint::name_in_files(tensor.spec().dtype)},
                        {"shape", list_of(tensor.spec().shape)},
                        {"mesh", meshes_.number(placement.mesh)}};
    if (placement.stage) object["stages"] = list_of(placement.stage->coordinates);
    if (!placement.shards.empty()) {
      json::array shards;
      for (const auto& shard : placement.shards) shards.push_back(stored::json_of(shard));
      object["shards"] = std::move(shards);
    }
    if (const auto* flat = std::get_if<sharding::FlatShard>(&placement.local))
      object["flat"] =
          json::object{{"axes", list_of(flat->axes)}, {"bucket", buckets_.number(flat->bucket)}, {"slot", flat->slot}};
    if (const auto* owner = std::get_if<sharding::Owner>(&placement.local))
      object["owner"] = json::object{{"axis", owner->axis}, {"coordinate", owner->coordinate}};
    object["writers"] = list_of(writers);
    return object;
  }

  Numbering<MeshShape> meshes_{[](const MeshShape& mesh) { return stored::json_of(mesh); }};
  Numbering<BucketLayout> buckets_{[](const BucketLayout& bucket) { return stored::json_of(bucket); }};
};

class Reader {
 public:
  Reader(const std::string& source, const StoredLimits& limits)
      : source_(source), most_ranks_(limits.ranks), bytes_left_(limits.bytes) {}

  StoredState read(const json::value& value) {
    const JsonObject in(value, source_);
    if (in.text("format") != format_name || in.number<std::int64_t>("version") != format_version)
      throw make_error(Errc::io, "{}: not placements of version {}", source_, format_version);
    StoredState state(in.number<int>("ranks"), in.flag("whole"));
    ranks_ = state.ranks();
    if (ranks_ < 1) throw make_error(Errc::io, "{}: member ranks is {}, expected at least 1", source_, ranks_);
    if (ranks_ > most_ranks_)
      throw make_error(Errc::io, "{}: member ranks is {}, expected at most {}, the number of parts", source_, ranks_,
                       most_ranks_);
    for (const auto& mesh : in.list("meshes")) meshes_.push_back(mesh_of(mesh));
    for (const auto& bucket : in.list("buckets")) buckets_.push_back(bucket_of(bucket));
    const json::value kinds(in.object("tensors"));
    const JsonObject tensors(kinds, source_);
    for (const Kind kind : all_kinds)
      for (const auto& tensor : tensors.list(name_of_kind(kind))) add(tensor, state.of(kind));
    return state;
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw make_error(Errc::io, "{}: a {} is not as it has to be", source_, what);
  }
  [[noreturn]] void refuse_tensor(const std::string& name, const char* what) const {
    throw make_error(Errc::io, "{}: tensor {} {}", source_, printable(name), what);
  }
  template <class T>
  T number(const json::value& value, const char* what) const {
    json::error_code status;
    const auto number = value.to_number<T>(status);
    if (status) refuse(what);
    return number;
  }
  std::string text(const json::value& value, const char* what) const {
    if (!value.is_string()) refuse(what);
    return std::string(value.get_string());
  }
  const json::array& list(const json::value& value, std::size_t size, const char* what) const {
    if (!value.is_array() || value.get_array().size() != size) refuse(what);
    return value.get_array();
  }
  template <class T>
  const T& element(const std::vector<T>& all, std::size_t index, const char* what) const {
    if (index >= all.size()) refuse(what);
    return all[index];
  }

  std::shared_ptr<const MeshShape> mesh_of(const json::value& value) const {
    if (!value.is_array()) refuse("mesh");
    std::vector<MeshAxis> axes;
    for (const auto& each : value.get_array()) {
      const auto& axis = list(each, 2, "mesh");
      axes.push_back({text(axis[0], "mesh"), number<int>(axis[1], "mesh")});
    }
    return std::make_shared<const MeshShape>(std::move(axes), ranks_);
  }

  std::shared_ptr<const BucketLayout> bucket_of(const json::value& value) const {
    const JsonObject in(value, source_);
    auto bucket = std::make_shared<BucketLayout>();
    bucket->elements = in.number<std::int64_t>("elements");
    if (bucket->elements < 0 || bucket->elements > most_elements) refuse("bucket");
    for (const auto& each : in.list("slots")) {
      const auto& slot = list(each, 3, "bucket");
      const auto offset = number<std::int64_t>(slot[1], "bucket"), count = number<std::int64_t>(slot[2], "bucket");
      if (offset < 0 || count < 0 || count > bucket->elements || offset > bucket->elements - count) refuse("bucket");
      bucket->slots.push_back({text(slot[0], "bucket"), offset, count});
    }
    return bucket;
  }

  sharding::Shard shard_of(const json::value& value) const {
    const JsonObject in(value, source_);
    return {.axis = in.text("axis"),
            .dimension = in.number<std::size_t>("dimension"),
            .pieces = in.number<std::int64_t>("pieces"),
            .unit = in.number<std::int64_t>("unit"),
            .copies = in.number<int>("copies"),
            .is_padded = in.flag("padded")};
  }

  std::vector<std::string> names(const JsonObject& in, const char* member) const {
    std::vector<std::string> all;
    for (const auto& name : in.list(member)) all.push_back(text(name, member));
    return all;
  }

  Placement placement_of(const JsonObject& in) const {
    Placement placement{.mesh = element(meshes_, in.number<std::size_t>("mesh"), "mesh")};
    if (in.has("stages")) placement.stage = sharding::Stage{in.numbers<int>("stages")};
    if (in.has("shards"))
      for (const auto& shard : in.list("shards")) placement.shards.push_back(shard_of(shard));
    if (in.has("flat")) {
      const json::value value(in.object("flat"));
      const JsonObject flat(value, source_);
      placement.local = sharding::FlatShard{.axes = names(flat, "axes"),
                                            .bucket = element(buckets_, flat.number<std::size_t>("bucket"), "bucket"),
                                            .slot = flat.number<std::size_t>("slot")};
    }
    if (in.has("owner")) {
      const json::value value(in.object("owner"));
      const JsonObject owner(value, source_);
      placement.local = sharding::Owner{owner.text("axis"), owner.number<int>("coordinate")};
    }
    return placement;
  }

  // Takes the bytes of a tensor from those that are left. One with an extent of 0 takes none, and its other extents
  // still take time.
  void take_bytes(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype) {
    std::uint64_t bytes = size_of(dtype);
    bool fits = bytes <= bytes_left_;
    for (const auto extent : shape) {
      if (extent < 0) refuse("shape");
      const auto factor = std::max<std::uint64_t>(static_cast<std::uint64_t>(extent), 1);
      fits = fits && !__builtin_mul_overflow(bytes, factor, &bytes) && bytes <= bytes_left_;
    }
    if (!fits) refuse_tensor(name, "takes more bytes than the parts have");
    if (std::ranges::count(shape, 0) == 0) bytes_left_ -= bytes;
  }

  void add(const json::value& value, StoredTensors& to) {
    const JsonObject in(value, source_);
    const auto name = in.text("name");
    const auto dtype = checkpoint::dtype_in_files(in.text("dtype"));
    if (!dtype) refuse_tensor(name, "has an unknown dtype");
    const auto shape = in.numbers<std::int64_t>("shape");
    take_bytes(name, shape, *dtype);
    PlacedTensor tensor({name, shape, *dtype}, placement_of(in));
    auto writers = in.numbers<int>("writers");
    const auto parts = tensor.parts();
    const auto has = [&](std::size_t p) { return std::ranges::count(tensor.holders(parts[p]), writers[p]) > 0; };
    bool fits = writers.size() == parts.size();
    for (std::size_t p = 0; fits && p < parts.size(); ++p) fits = has(p);
    if (!fits) refuse_tensor(name, "has parts that these writers do not have");
    to.tensors.push_back(std::move(tensor));
    to.writers.push_back(std::move(writers));
  }

  const std::string& source_;
  const int most_ranks_;
  std::uint64_t bytes_left_;
  int ranks_ = 0;
  std::vector<std::shared_ptr<const MeshShape>> meshes_;
  std::vector<std::shared_ptr<const BucketLayout>> buckets_;
};

}  // namespace

std::string to_json(const StoredState& state) {
  return json::serialize(Writer().write(state)) + "\n";
}

// A placement that the tensor cannot have is damage here, and no mistake of a user.
StoredState stored_state_from_json(std::string_view text, const std::string& source, const StoredLimits& limits) {
  const auto value = checkpoint::parse_json(text, source);
  try {
    return Reader(source, limits).read(value);
  } catch (const Error& e) {
    if (e.code() == Errc::io) throw;
    throw make_error(Errc::io, "{}: {}", source, printable(e.what()));
  }
}

}  // namespace ddprun::stored
