// Runs kernels on the host, one block and one thread at a time. A thread that reaches __syncthreads stays suspended on
// its own stack until all threads of the block have reached it.
#include "device.hpp"

#include "include/cuda_runtime.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers, switches stacks, and returns to where the other stack was left (System V ABI, AMD64
// supplement, 3.2.1). swapcontext would make a system call for the signal mask each time.
extern "C" void switch_stack(void** left, void* entered);
asm(R"(
  .text
  .type switch_stack, @function
switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size switch_stack, .-switch_stack
)");

namespace fake_gpu {

namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10U;

struct Stack {
  void* pointer = nullptr;  ///< where it was left
  std::byte* bottom = nullptr;
  std::size_t size = 0;
  void* fake = nullptr;  ///< AddressSanitizer's
};

void change_stack(Stack& from, Stack& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake, to.bottom, to.size);
#endif
  switch_stack(&from.pointer, to.pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

/// Runs the threads of one block at a time.
class Threads {
 public:
  void run_block(const std::function<void()>& thread) {
    thread_ = &thread;
    count_ = blockDim.x * blockDim.y * blockDim.z;
    next_ = 0;
    backwards_ = Device::get().random().below(2) == 1;
    while (next_ < count_) {
      Fiber* fiber = take();
      enter(*fiber);
      (fiber->waits ? waiting_ : idle_).push_back(fiber);
    }
    while (!waiting_.empty()) {  // all threads are at the barrier: run them to the next one or to the end
      entered_.swap(waiting_);
      waiting_.clear();
      for (auto fiber = entered_.rbegin(); fiber != entered_.rend(); ++fiber) {
        enter(**fiber);
        ((*fiber)->waits ? waiting_ : idle_).push_back(*fiber);
      }
    }
  }

  void wait_for_all() {
    Fiber* const fiber = current_;
    const uint3 place = threadIdx;
    fiber->waits = true;
    change_stack(fiber->stack, host_);
    fiber->waits = false;
    threadIdx = place;
  }

  [[noreturn]] void live() {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &host_.size);
    host_.bottom = static_cast<std::byte*>(const_cast<void*>(bottom));
#endif
    while (true) {
      while (next_ < count_) {
        const unsigned number = backwards_ ? count_ - 1 - next_ : next_;
        ++next_;
        threadIdx = {number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
        (*thread_)();
      }
      change_stack(current_->stack, host_);
    }
  }

 private:
  struct Fiber {
    Stack stack;
    bool waits = false;
  };

  Fiber* take();

  void enter(Fiber& fiber) {
    current_ = &fiber;
    change_stack(host_, fiber.stack);
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;  // never freed, like the device
  std::vector<Fiber*> idle_;
  std::vector<Fiber*> waiting_, entered_;
  Fiber* current_ = nullptr;
  Stack host_;
  const std::function<void()>* thread_ = nullptr;
  unsigned count_ = 0;
  unsigned next_ = 0;
  bool backwards_ = false;
};

Threads& threads() {
  static Threads threads;
  return threads;
}

void enter_fiber() { threads().live(); }

Threads::Fiber* Threads::take() {
  if (!idle_.empty()) {
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  Fiber* const fiber = fibers_.emplace_back(std::make_unique<Fiber>()).get();
  fiber->stack.bottom = static_cast<std::byte*>(memory);
  fiber->stack.size = stack_bytes;
  auto** top = reinterpret_cast<void**>(fiber->stack.bottom + stack_bytes);
  *--top = nullptr;  // return address of enter_fiber; aligns the stack as after a call
  *--top = reinterpret_cast<void*>(&enter_fiber);
  fiber->stack.pointer = top - 6;  // six registers with arbitrary values
  return fiber;
}

void run_grid(dim3 blocks, dim3 block, const std::function<void()>& thread) {
  gridDim = blocks;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < blocks.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < blocks.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < blocks.x; ++blockIdx.x) threads().run_block(thread);
    }
  }
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const Locked locked;
  const dim3 blocks = config.gridDim;
  const dim3 block = config.blockDim;
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  const bool some = blocks.x > 0 && blocks.y > 0 && blocks.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
  const bool fits = blocks.x <= 0x7FFFFFFFU && blocks.y <= 0xFFFFU && blocks.z <= 0xFFFFU && block.x <= 1024 &&
                    block.y <= 1024 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= 1024;
  if (!some || !fits) return cudaErrorInvalidConfiguration;
  return Device::get().enqueue_call(config.stream,
                                    [blocks, block, thread = std::move(thread)] { run_grid(blocks, block, thread); });
}

}  // namespace fake_gpu

void __syncthreads() { fake_gpu::threads().wait_for_all(); }
