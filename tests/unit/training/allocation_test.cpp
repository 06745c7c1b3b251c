// Lockstep allocates memory only in the first step of each batch size. All allocations of this program pass through the
// functions below, which record the stack of each allocation during a step.
//
// Libraries do allocate in every step. With oneDNN 2.6.3 and one thread, dnnl_primitive_execute allocates argument
// tables and OpenMP teams, 54 times per step of keras_mnist and about 300 times per step of custom_training_mnist,
// whose convolutions run in microbatches. libgomp allocates a team for each parallel region, 23 and about 55 times per
// step. These numbers must not grow from step to step.
#include "support/catch.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)

TEST_CASE("steps after the first allocate nothing") { WARN("skipped: sanitizers replace the allocator"); }

#else

#include "support/examples.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int max_frames = 48;
struct Stack {
  std::array<void*, max_frames> frames;
  int depth;
};

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
std::array<Stack, 4096> stacks;  // of the first allocations
thread_local bool noting = false;

void note() noexcept {
  if (!counting.load(std::memory_order_relaxed) || noting) return;
  noting = true;
  const std::size_t number = allocations.fetch_add(1);
  if (number < stacks.size()) stacks[number].depth = backtrace(stacks[number].frames.data(), max_frames);
  noting = false;
}

}  // namespace

// glibc's implementations. The functions below replace malloc and its relatives for all libraries of the program.
extern "C" {
void* __libc_malloc(std::size_t size);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT
void* __libc_realloc(void* memory, std::size_t size);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT

void* malloc(std::size_t size) noexcept {
  note();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) noexcept {
  note();
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  note();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  note();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  note();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::string library_of(void* address) {
  Dl_info library{};
  const bool known = dladdr(address, &library) != 0 && library.dli_fname != nullptr;
  return known ? std::filesystem::path(library.dli_fname).filename().string() : "";
}

struct Counts {
  std::size_t in_onednn = 0;
  std::size_t in_openmp = 0;
  std::size_t elsewhere = 0;
  std::string where;  ///< the callers of the allocations counted in `elsewhere`, as addresses in this program
};

/// Counts the allocations during `action`: within oneDNN's functions, within libgomp, and elsewhere.
template <typename Action>
Counts allocations_of(Action action) {
  allocations = 0;
  counting = true;
  action();
  counting = false;
  Counts counts;
  const std::size_t count = std::min<std::size_t>(allocations, stacks.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<void* const> frames(stacks[i].frames.data(), static_cast<std::size_t>(stacks[i].depth));
    if (std::ranges::any_of(frames, [](void* frame) { return library_of(frame).starts_with("libdnnl"); })) {
      ++counts.in_onednn;
      continue;
    }
    if (std::ranges::any_of(frames, [](void* frame) { return library_of(frame).starts_with("libgomp"); })) {
      ++counts.in_openmp;
      continue;
    }
    ++counts.elsewhere;
    char** const names = backtrace_symbols(frames.data(), stacks[i].depth);
    for (int frame = 0; names != nullptr && frame < std::min(stacks[i].depth, 8); ++frame)
      counts.where += std::string(names[frame]) + "\n";
    std::free(names);  // NOLINT
    counts.where += "\n";
  }
  return counts;
}

void check_steps(const Sequential& architecture, const Optimizer& optimizer) {
  const SparseCategoricalCrossentropy logits({.from_logits = true});
  const Examples examples = make_examples(architecture, logits, 128 + 96, 1, Pixels::bytes);
  MultiWorkerMirroredStrategy strategy{
      {.model_dir = std::filesystem::temp_directory_path() / "lockstep-allocation-test", .verbose = 0}};
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
  const auto step = [&](std::uint64_t position, std::size_t size) {
    return allocations_of([&] { model.train_step({.data = &examples.data, .position = position, .size = size}); });
  };
  CHECK(step(0, 128).elsewhere > 0);  // checks that the hooks see the first step's allocations
  CHECK(step(128, 96).elsewhere > 0);
  std::map<std::size_t, Counts> first;
  for (std::uint64_t pass = 1; pass < 6; ++pass) {  // each pass has another order of examples
    for (const std::size_t size : {128, 96}) {
      const Counts counts = step(224 * pass + 128 - size, size);
      INFO(counts.where);
      CHECK(counts.elsewhere == 0);
      const Counts& before = first.try_emplace(size, counts).first->second;
      CHECK(counts.in_onednn == before.in_onednn);
      CHECK(counts.in_openmp == before.in_openmp);
    }
  }
}

}  // namespace

TEST_CASE("steps after the first allocate nothing") {
  std::array<void*, max_frames> frames;
  REQUIRE(backtrace(frames.data(), max_frames) > 0);  // loads libgcc before allocations are counted
  std::vector<int> some;
  CHECK(allocations_of([&] { some.resize(1000); }).elsewhere == 1);
  CHECK(allocations_of([&] { some[999] = 1; }).elsewhere == 0);
  check_steps(Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                         Dense(128, {.activation = relu}), Dense(10)},
              SGD({.learning_rate = 0.001}));
  check_steps(Sequential{Input({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), MaxPooling2D(),
                         Conv2D(64, 3, {.activation = relu}), MaxPooling2D(), Flatten(),
                         Dense(64, {.activation = relu}), Dense(10)},
              Adam());
  check_steps(Sequential{Input({28, 28, 1}), Conv2D(32, 3), BatchNormalization(), Activation(relu), AveragePooling2D(),
                         Dropout(0.2), Flatten(), Dense(32, {.activation = sigmoid}), Dense(10)},
              RMSprop());
}

#endif
