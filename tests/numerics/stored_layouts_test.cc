// Checkpoints that ranks write in parts: each layout resumes from those of every other one, with the bits that it has
// from the same state in whole files.
#include <cstring>
#include <map>

#include "worker/comm/backends/local/self_group.h"
#include "worker/parallel/stored/load.h"
#include "worker/parallel/stored/model_source.h"
#include "tests/numerics/layout_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Values = std::vector<std::byte>;
struct WholeTensor {
  checkpoint::TensorInfo info;
  Values values;
};
using WholeTensors = std::vector<WholeTensor>;

// Returns the tensors of a kind, whole, from a checkpoint of any layout.
WholeTensors read(const checkpoint::Found& found, stored::Kind kind) {
  auto state = stored::stored_state_of(found);
  const std::vector<int> readers(static_cast<std::size_t>(state.ranks()), 0);
  const stored::StoredFiles files{found.folder, std::move(state), readers};
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{}, 1);
  stored::LoadTarget target;
  for (const auto& tensor : files.state.of(kind).tensors) {
    target.tensors.push_back({tensor.spec(), {.mesh = mesh}});
    target.own.push_back(Tensor::zeros(Shape(tensor.spec().shape), tensor.spec().dtype));
  }
  stored::load(files, kind, target, *comm::make_self_group());
  WholeTensors all;
  for (std::size_t i = 0; i < target.tensors.size(); ++i) {
    const auto& spec = target.tensors[i].spec();
    WholeTensor& whole = all.emplace_back(WholeTensor{{spec.name, spec.dtype, spec.shape}, {}});
    whole.values.resize(target.own[i].bytes());
    std::memcpy(whole.values.data(), Tensor(target.own[i]).raw(), whole.values.size());
  }
  return all;
}

std::vector<checkpoint::TensorView> views_of(const WholeTensors& tensors) {
  std::vector<checkpoint::TensorView> views;
  for (const auto& [info, values] : tensors) views.push_back({info.name, info.dtype, info.shape, values});
  return views;
}

checkpoint::Found newest_in(const std::filesystem::path& folder) {
  return checkpoint::Checkpoints({.folder = folder}).newest().value();
}

// Writes the state of a checkpoint into whole files in another folder.
void copy_whole(const checkpoint::Found& found, const std::filesystem::path& folder) {
  const auto model = read(found, stored::Kind::model), optimizer = read(found, stored::Kind::optimizer);
  checkpoint::Checkpoints({.folder = folder})
      .save({.model = views_of(model), .optimizer = views_of(optimizer), .state = found.state});
}

struct Layout {
  std::string keys;  // lines of [parallel]
  bool is_divided = true;
};

class Job {
 public:
  explicit Job(std::string text) : text_(std::move(text)) {}

  trainer::Summary run(const Layout& layout, const std::filesystem::path& folder, int steps,
                       const std::string& resume = "require") const {
    return TrainingJob(text_ + "[train]\nglobal_batch_size = 8\nepochs = 9\nmax_steps = " + std::to_string(steps) +
                       "\n[checkpoint]\nresume = " + resume + "\ndir = " + folder.string() + "\n[parallel]\n" +
                       layout.keys)
        .run(4)[0];
  }

 private:
  std::string text_;
};

void check(const Job& job, const std::vector<Layout>& layouts) {
  for (const Layout& saved : layouts) {
    const TempDir parts, whole;
    INFO("saved with " << saved.keys);
    const auto summary = job.run(saved, parts.path(), 2, "auto");
    const auto found = newest_in(parts.path());
    CHECK(found.has_parts == saved.is_divided);
    CHECK(found.state.step == 2);
    copy_whole(found, whole.path());
    CHECK_FALSE(newest_in(whole.path()).has_parts);
    for (const Layout& loaded : layouts) {
      INFO("loaded with " << loaded.keys);
      TempDir from_parts, from_whole;
      std::filesystem::copy(found.folder, from_parts / "step_000002");
      std::filesystem::copy(newest_in(whole.path()).folder, from_whole / "step_000002");
      CHECK(job.run(loaded, from_parts.path(), 2).parameter_digest == summary.parameter_digest);
      CHECK(job.run(loaded, from_parts.path(), 3).parameter_digest ==
            job.run(loaded, from_whole.path(), 3).parameter_digest);
    }
  }
}

}  // namespace

TEST_CASE("a checkpoint of any layout resumes in every other one, with the bits of the same state in whole files") {
  const TextFile text;
  check(Job(text.keys({.context = 8, .layers = 4, .width = 16, .heads = 2}) + adamw),
        {{"", false},
         {"zero = 1\n"},
         {"zero = 2\nshard_group = 2\n"},
         {"zero = 3\n"},
         {"tensor = 2\n"},
         {"tensor = 2\nzero = 3\n"},
         {"pipeline = 2\nmicro_batches = 2\nsplit = h.2\n"},
         {"pipeline = 2\nmicro_batches = 2\nsplit = h.1\nzero = 1\n"}});
}

TEST_CASE("a checkpoint of divided experts resumes in every other layout") {
  const TextFile text;
  check(Job(text.keys({.context = 8, .layers = 2, .width = 16, .heads = 2}) + "experts = 4\n" + adamw),
        {{"", false}, {"expert = 2\n"}, {"expert = 4\n"}, {"expert = 2\nzero = 1\n"}});
}

TEST_CASE("averages of parts resume in every other layout, and replace the parameters of an export") {
  const Job job(digits + "[model]\nname = cnn_bn\n[train]\nema = 0.9\n" + sgd);
  const std::vector<Layout> layouts{{"", false}, {"zero = 1\n"}, {"zero = 3\n"}};
  const auto values_of = [](const checkpoint::TensorSource& source, const std::string& name) {
    const auto* info = source.find(name);
    Values values(info->bytes());
    source.read(*info, values);
    return values;
  };
  for (const Layout& saved : layouts)
    for (const Layout& loaded : layouts) {
      INFO("saved with " << saved.keys << "loaded with " << loaded.keys);
      TempDir dir;
      job.run(saved, dir.path(), 2, "auto");
      const auto before = newest_in(dir.path());
      const auto averages = read(before, stored::Kind::averages);
      const auto model = stored::open_model(before);
      CHECK(model.has_averages);
      for (const auto& average : averages) CHECK(values_of(*model.tensors, average.info.name) == average.values);
      CHECK(model.tensors->find("bn1.running_mean"));
      job.run(loaded, dir.path(), 3);
      CHECK(read(newest_in(dir.path()), stored::Kind::averages).size() > 0);
    }
}
