#include "worker/autograd/variable.h"

#include <cmath>
#include <pthread.h>
#include <string>
#include <vector>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops.h"
#include "worker/tensor/kernels.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Variable leaf(std::vector<float> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return Variable(Tensor::from(values, {size}), true);
}

std::vector<float> gradient(const Variable& variable) {
  const Tensor& grad = variable.grad();
  return {grad.data<float>(), grad.data<float>() + grad.numel()};
}

}  // namespace

TEST_CASE("gradients add up over backward passes until they are cleared") {
  Variable x = leaf({1, 2});
  CHECK_FALSE(x.grad().defined());
  sum(mul(x, 3)).backward();
  CHECK(gradient(x) == std::vector<float>{3, 3});
  sum(mul(x, x)).backward();
  CHECK(gradient(x) == std::vector<float>{5, 7});
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a variable used by several operations gets the sum") {
  Variable x = leaf({2});
  const Variable y = mul(x, x);
  sum(add(add(y, y), mul(y, x))).backward();  // 2 x^2 + x^3
  CHECK(gradient(x) == std::vector<float>{4 * 2 + 3 * 4});
}

TEST_CASE("one gradient handed to two inputs is not added to itself") {
  Variable a = leaf({1}), b = leaf({1});
  const Variable s = add(a, b);
  sum(add(s, s)).backward();
  CHECK(gradient(a) == std::vector<float>{2});
  CHECK(gradient(b) == std::vector<float>{2});
  Tensor gradient_of_a = a.grad();
  gradient_of_a.fill(9);
  CHECK(gradient(b) == std::vector<float>{2});
}

TEST_CASE("a second backward over the same tape is an error that says so") {
  Variable x = leaf({1});
  const Variable middle = mul(x, 2);
  const Variable first = sum(middle), second = sum(mul(middle, 2));
  first.backward();
  CHECK_THROWS_WITH(first.backward(), Catch::Contains("already walked"));
  CHECK_THROWS_WITH(second.backward(), Catch::Contains("already walked"));
  CHECK(gradient(x) == std::vector<float>{2});
}

TEST_CASE("backward needs a recorded scalar") {
  Variable x = leaf({1, 2});
  CHECK_THROWS_WITH(mul(x, 2).backward(), Catch::Contains("[2]"));
  CHECK_THROWS_WITH(sum(Variable(Tensor::zeros({2}))).backward(), Catch::Contains("nothing was recorded"));
  CHECK_THROWS_WITH(Variable(Tensor::zeros({2})).zero_grad(), Catch::Contains("not a leaf"));
  CHECK_THROWS_WITH(Variable(Tensor::zeros({2}, DType::int64), true), Catch::Contains("int64"));
}

TEST_CASE("nothing is recorded in a no-grad scope, on this thread alone, and scopes nest") {
  Variable x = leaf({1});
  {
    NoGradScope outer;
    {
      NoGradScope inner;
      CHECK_FALSE(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE(mul(x, 2).requires_grad());
  }
  CHECK(grad_enabled());
  CHECK(mul(x, 2).requires_grad());
  CHECK_FALSE(mul(x, 2).detach().requires_grad());
}

TEST_CASE("a hook runs once a pass, when the leaf's last use has been walked") {
  Variable early = leaf({1}), late = leaf({1}), unused = leaf({1});
  std::vector<std::string> calls;
  auto early_hook = early.on_grad_ready([&] { calls.push_back("early " + std::to_string(early.grad().item())); });
  const auto late_hook = late.on_grad_ready([&] { calls.push_back("late " + std::to_string(late.grad().item())); });
  const auto unused_hook = unused.on_grad_ready([&] { calls.push_back("unused"); });
  const auto loss = [&] { return sum(mul(mul(mul(early, 2), early), late)); };
  loss().backward();
  CHECK(calls == std::vector<std::string>{"late 2.000000", "early 4.000000"});
  loss().backward();
  CHECK(calls.size() == 4);
  early_hook = {};
  loss().backward();
  CHECK(calls.size() == 5);
}

TEST_CASE("layers' hooks run in the reverse order of their use") {
  std::vector<Variable> weights;
  std::vector<Variable::Hook> hooks;
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    weights.push_back(Variable(Tensor::full({3, 3}, 0.5), true));
    hooks.push_back(weights.back().on_grad_ready([&order, i] { order.push_back(i); }));
  }
  Variable value(Tensor::full({2, 3}, 1));
  for (const Variable& weight : weights) value = relu(linear(value, weight));
  sum(value).backward();
  CHECK(order == std::vector<int>{4, 3, 2, 1, 0});
}

TEST_CASE("what a hook throws comes out of backward") {
  Variable x = leaf({1});
  const auto hook = x.on_grad_ready([] { throw Error(Errc::peer_lost, "rank 1 is gone"); });
  CHECK_THROWS_WITH(sum(x).backward(), "rank 1 is gone");
}

TEST_CASE("gradients accumulate in storage from outside and stay there") {
  std::vector<float> bucket(6, 7.0F);
  Variable weight(Tensor::full({2, 2}, 1), true);
  const Tensor slice = Tensor::wrap(bucket.data() + 1, {2, 2}, DType::float32, nullptr);
  weight.set_grad_storage(slice);
  CHECK(bucket == std::vector<float>{7, 0, 0, 0, 0, 7});
  const auto run = [&] { sum(linear(Variable(Tensor::full({1, 2}, 3)), weight)).backward(); };
  run();
  run();
  CHECK(bucket == std::vector<float>{7, 6, 6, 6, 6, 7});
  weight.zero_grad();
  run();  // overwrites the earlier gradient
  CHECK(bucket == std::vector<float>{7, 3, 3, 3, 3, 7});
  weight.zero_grad();
  CHECK(weight.grad().raw() == bucket.data() + 1);
  CHECK(bucket == std::vector<float>{7, 0, 0, 0, 0, 7});
  sum(mul(weight, 2)).backward();
  CHECK(bucket == std::vector<float>{7, 2, 2, 2, 2, 7});
  CHECK_THROWS_WITH(weight.set_grad_storage(Tensor::zeros({4})), Catch::Contains("[4]") && Catch::Contains("[2, 2]"));
}

TEST_CASE("cleared storage is zero when a hook runs, whether or not the pass wrote it") {
  std::vector<float> bucket{5, 5};
  Variable x = leaf({1, 2});
  x.set_grad_storage(Tensor::wrap(bucket.data(), {2}, DType::float32, nullptr));
  sum(x).backward();
  x.zero_grad();
  std::vector<float> seen;
  const auto hook = x.on_grad_ready([&] { seen = bucket; });
  const autograd::Function operation("constant", {x});
  operation.record(Tensor::zeros({}), {}, [](autograd::Backward&) {}).backward();
  CHECK(seen == std::vector<float>{0, 0});
  x.zero_grad();
  x.set_grad_storage(Tensor::full({2}, 9));
  CHECK(x.grad().data<float>()[1] == 0);
}

TEST_CASE("storage takes over a gradient that is there already") {
  Variable x = leaf({1, 2});
  sum(x).backward();
  x.set_grad_storage(Tensor::full({2}, 5));
  CHECK(gradient(x) == std::vector<float>{1, 1});
}

TEST_CASE("storage that is made on demand is asked for by the first gradient, and given up") {
  std::vector<float> memory{9, 9};
  int asked = 0;
  Variable x(Tensor::full({2}, 1), true);
  x.set_grad_storage([&] { return ++asked, Tensor::wrap(memory.data(), {2}, DType::float32, nullptr); });
  CHECK_FALSE(x.grad().defined());
  for (const int pass : {1, 2}) {
    const Variable loss = sum(mul(x, 3.0));
    CHECK(asked == pass - 1);
    loss.backward();
    CHECK(asked == pass);
    sum(mul(x, 2.0)).backward();  // adds
    CHECK(asked == pass);
    CHECK(memory == std::vector<float>{5, 5});
    CHECK(x.grad().raw() == memory.data());
    x.release_grad();
    CHECK_FALSE(x.grad().defined());
  }
}

TEST_CASE("an operation refuses an operand whose contents are absent") {
  const Variable x(Tensor::full({2}, 1), true);
  x.value().storage()->set_present(false);
  CHECK_THROWS_WITH(sum(x), Catch::Contains("an operand of shape [2] is absent"));
  x.value().storage()->set_present(true);
  CHECK(sum(x).value().item() == 2);
}

TEST_CASE("a gradient in lazy storage is undefined until something is added") {
  std::vector<float> bucket(2, 7.0F);
  Variable weight(Tensor::full({2}, 1), true);
  weight.set_grad_storage(Tensor::wrap(bucket.data(), {2}, DType::float32, nullptr), Variable::GradStorage::lazy);
  CHECK_FALSE(weight.grad().defined());
  CHECK(bucket == std::vector<float>{0, 0});
  sum(mul(weight, 2)).backward();
  sum(mul(weight, 3)).backward();
  CHECK(weight.grad().raw() == bucket.data());
  CHECK(bucket == std::vector<float>{5, 5});
  weight.zero_grad();
  CHECK_FALSE(weight.grad().defined());
  CHECK(bucket == std::vector<float>{0, 0});
  weight.define_grad();
  CHECK(weight.grad().raw() == bucket.data());
}

TEST_CASE("a long tape is walked and destroyed without recursion") {
  // The work runs on a stack of 256 KiB, which holds no ten thousand frames.
  const auto work = [](void* result) -> void* {
    Variable x = leaf({1});
    const auto chain = [&] {
      Variable value = x;
      for (int i = 0; i < 50000; ++i) value = add(value, x);
      return sum(value);
    };
    chain().backward();
    chain();  // destroyed without having been walked
    *static_cast<float*>(result) = gradient(x)[0];
    return nullptr;
  };
  float result = 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, &attributes, work, &result) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(result == 50001);
}

TEST_CASE("the tape is freed as it is walked") {
  auto owner = std::make_shared<std::vector<float>>(4096, 1.0F);
  std::weak_ptr<std::vector<float>> watch = owner;
  Variable x = leaf(std::vector<float>(4096, 1.0F));
  Variable loss = sum(mul(x, Variable(Tensor::wrap(owner->data(), {4096}, DType::float32, owner))));
  owner.reset();
  CHECK_FALSE(watch.expired());
  loss.backward();
  CHECK(watch.expired());
}

TEST_CASE("what a hook leaves for the end of the pass runs once, after all gradients") {
  Variable x = leaf({1, 2}), y = leaf({3, 4});
  std::vector<std::string> order;
  const auto x_hook = x.on_grad_ready([&] {
    order.push_back("x");
    at_end_of_backward([&] { order.push_back("end"); });
  });
  const auto y_hook = y.on_grad_ready([&] { order.push_back("y"); });
  sum(add(mul(x, y), y)).backward();
  REQUIRE(order.size() == 3);
  CHECK(order.back() == "end");
  CHECK_THROWS_AS(at_end_of_backward([] {}), Error);
}

TEST_CASE("several hooks of a leaf run in their order, and each ends with its handle") {
  Variable x = leaf({1});
  std::vector<int> order;
  auto first = x.on_grad_ready([&] { order.push_back(1); });
  const auto second = x.on_grad_ready([&] { order.push_back(2); });
  sum(x).backward();
  CHECK(order == std::vector<int>{1, 2});
  first = {};
  sum(x).backward();
  CHECK(order == std::vector<int>{1, 2, 2});
}

TEST_CASE("handles of a variable share value and gradient") {
  Variable x = leaf({2});
  const Variable same = x;
  CHECK(same.is(x));
  CHECK_FALSE(Variable(x.value(), true).is(x));
  x.set_value(Tensor::from<float>({5}, {1}));
  CHECK(same.value().item() == 5);
  sum(mul(x, same)).backward();
  CHECK(gradient(same) == std::vector<float>{10});
  x.set_value(x.value().to(DType::float64));
  CHECK(same.dtype() == DType::float64);
  CHECK_FALSE(same.grad().defined());
}

TEST_CASE("a frozen leaf has no gradient, and is a leaf again when it is freed") {
  Variable x = leaf({2}), y = leaf({3});
  y.set_requires_grad(false);
  sum(mul(x, y)).backward();
  CHECK(gradient(x) == std::vector<float>{3});
  CHECK_FALSE(y.grad().defined());
  CHECK_FALSE(mul(y, y).requires_grad());
  y.set_requires_grad(true);
  sum(mul(x, y)).backward();
  CHECK(gradient(y) == std::vector<float>{2});
  CHECK_THROWS_WITH(mul(x, y).set_requires_grad(false), Catch::Contains("not a leaf"));
}

TEST_CASE("backward from any tensor takes its gradient, and from several at once") {
  Variable x = leaf({1, 2});
  const Variable y = mul(x, x);
  y.backward(Tensor::from<float>({10, 100}, {2}));
  CHECK(gradient(x) == std::vector<float>{20, 400});
  x.zero_grad();
  int calls = 0;
  const auto hook = x.on_grad_ready([&] { ++calls; });
  const Variable z = mul(x, 3);
  backward({z, sum(z), x}, {Tensor::from<float>({1, 1}, {2}), {}, Tensor::from<float>({7, 8}, {2})});
  CHECK(gradient(x) == std::vector<float>{3 + 3 + 7, 3 + 3 + 8});
  CHECK(calls == 1);
  CHECK_THROWS_WITH(mul(x, 2).backward(Tensor::zeros({3})), Catch::Contains("[3]") && Catch::Contains("[2]"));
}

namespace {

// y = x^3, as a user writes it.
Variable cube(const Variable& x) {
  const autograd::Function operation("cube", {x});
  const Tensor& v = x.value();
  Tensor y = kernels::multiply(kernels::multiply(v, v), v);
  return operation.record(std::move(y), {v}, [](autograd::Backward& pass) {
    const Tensor& saved = pass.saved(0);
    pass.add(0, kernels::scale(kernels::multiply(pass.grad(), kernels::multiply(saved, saved)), 3));
  });
}

}  // namespace

TEST_CASE("an operation of a user has a gradient like any other") {
  Variable x = leaf({2, -1});
  sum(cube(mul(x, 2))).backward();
  CHECK(gradient(x) == std::vector<float>{3 * 16 * 2, 3 * 4 * 2});
}

TEST_CASE("anomaly mode names the operation and the module that produced a NaN") {
  Variable x = leaf({-1, 0});
  const std::string outer = "blocks", inner = "3";
  const autograd::NameScope outer_scope(outer), inner_scope(inner);
  CHECK_FALSE(std::isfinite(log(x).value().data<float>()[0]));  // silent without the mode
  const autograd::AnomalyScope anomaly;
  CHECK_THROWS_WITH(log(x), Catch::Contains("log in module blocks.3 produced a NaN or an infinity: its result"));
  // sqrt is finite at 0, its gradient is not.
  Variable zero = leaf({0});
  const Variable root = sum(sqrt(zero));
  CHECK_THROWS_WITH(root.backward(),
                    Catch::Contains("sqrt in module blocks.3") && Catch::Contains("the gradient of its input 0"));
}

namespace {

// Returns 2 x; its backward function adds the gradients of others to x's by itself, and gives a copy in bfloat16.
Variable twice(const Variable& x, Tensor& taken, Tensor& copy) {
  const autograd::Function operation("twice", {x});
  return operation.record(kernels::scale(x.value(), 2), {}, [&taken, &copy](autograd::Backward& pass) {
    taken = pass.take(0);
    Tensor gradient = kernels::scale(pass.grad(), 2);
    if (taken.defined()) kernels::add_in_place(gradient, taken);
    if (pass.copy_dtype(0)) copy = gradient.to(*pass.copy_dtype(0));
    pass.add(0, gradient, copy);
  });
}

// Returns 3 x; its backward function reads the gradient in bfloat16, too.
Variable thrice(const Variable& x, Tensor& read) {
  const autograd::Function operation("thrice", {x});
  const Variable result = operation.record(kernels::scale(x.value(), 3), {}, [&read](autograd::Backward& pass) {
    read = pass.grad_in(DType::bfloat16);
    pass.add(0, kernels::scale(pass.grad(), 3));
  });
  autograd::reads_gradient_in(result, DType::bfloat16);
  return result;
}

}  // namespace

TEST_CASE("an operation adds what others have given to its input's gradient, and a copy of the sum is read as it is") {
  Tensor taken, copy, read;
  Variable x = leaf({1, 2});
  const Variable y = thrice(x, read);
  const Variable first = twice(y, taken, copy);
  sum(add(first, mul(y, 5))).backward();  // the product's gradient comes first
  REQUIRE(taken.defined());
  CHECK(taken.data<float>()[0] == 5);
  CHECK(gradient(x) == std::vector<float>{21, 21});
  REQUIRE(copy.defined());
  CHECK(read.raw() == copy.raw());
}

TEST_CASE("a copy of a gradient is not read once something else was added to it") {
  Tensor taken, copy, read;
  Variable x = leaf({1, 2});
  const Variable y = thrice(x, read);
  const Variable before = mul(y, 5);
  const Variable last = twice(y, taken, copy);
  sum(add(last, before)).backward();  // the product's gradient comes last
  CHECK_FALSE(taken.defined());
  CHECK(gradient(x) == std::vector<float>{21, 21});
  REQUIRE(copy.defined());
  CHECK(read.raw() != copy.raw());
  CHECK(read.to(DType::float32).data<float>()[0] == 7);
}

TEST_CASE("a leaf's gradient is not taken, and has no copy") {
  Tensor taken, copy;
  Variable x = leaf({1, 2});
  sum(mul(x, 5)).backward();
  sum(twice(x, taken, copy)).backward();
  CHECK_FALSE(taken.defined());
  CHECK_FALSE(copy.defined());
  CHECK(gradient(x) == std::vector<float>{7, 7});
}
