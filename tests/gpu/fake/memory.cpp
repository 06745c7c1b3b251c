// See memory.hpp.
#include "memory.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace fake_gpu {

namespace {

constexpr std::size_t capacity = std::size_t{4} << 30U;
constexpr std::size_t alignment = 256;  // CUDA C++ Programming Guide, "Device Memory Accesses": at least 256 bytes
constexpr std::size_t gap = 256;        // between allocations, so that AddressSanitizer sees an overrun
constexpr std::size_t page = 4096;
constexpr int closing_every = 16;  // of the host's waits: changing the protection is slow, and a wrong access repeats

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Memory::Memory() {
  void* const memory = mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  (void)madvise(memory, capacity, MADV_HUGEPAGE);  // fewer pages to lock and unlock
  base_ = static_cast<std::byte*>(memory);
}

Memory::~Memory() {
  ASAN_UNPOISON_MEMORY_REGION(base_, used_);
  munmap(base_, capacity);
}

void* Memory::allocate(std::size_t bytes) {
  std::size_t place = 0;  // offset of the first gap that is large enough
  const std::size_t size = round_up(bytes, alignment) + gap;
  for (const auto& [begin, length] : blocks_) {
    if (begin - place >= size) break;
    place = begin + round_up(length, alignment) + gap;
  }
  if (capacity - place < size) return nullptr;
  if (place + size > used_) {
    used_ = round_up(place + size, page);
    allow(allowed_);
  }
  blocks_[place] = bytes;
  new_blocks_.push_back(place);
  ASAN_UNPOISON_MEMORY_REGION(base_ + place, bytes);
  ASAN_POISON_MEMORY_REGION(base_ + place + bytes, size - bytes);
  if (open_ > 0) fill_new();
  return base_ + place;
}

bool Memory::release(void* memory) {
  const auto block = blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - base_));
  if (!is_device(memory) || block == blocks_.end()) return false;
  ASAN_POISON_MEMORY_REGION(memory, block->second);
  blocks_.erase(block);
  return true;
}

bool Memory::holds(const void* memory, std::size_t bytes) const {
  if (!is_device(memory)) return false;
  const auto place = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - base_);
  auto block = blocks_.upper_bound(place);
  if (block == blocks_.begin()) return false;
  --block;
  return place - block->first <= block->second && bytes <= block->second - (place - block->first);
}

bool Memory::is_device(const void* memory) const {
  const auto* address = static_cast<const std::byte*>(memory);
  return address >= base_ && address < base_ + capacity;
}

void Memory::allow(bool access) {
  allowed_ = access;
  if (used_ > 0) mprotect(base_, used_, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void Memory::fill_new() {
  for (const std::size_t place : std::exchange(new_blocks_, {})) {
    if (const auto block = blocks_.find(place); block != blocks_.end()) {
      std::memset(base_ + place, 0xFF, block->second);
    }
  }
}

Unlocked::Unlocked(Memory& memory) : memory_(memory) {
  if (memory_.open_++ > 0) return;
  if (!memory_.allowed_) memory_.allow(true);
  memory_.fill_new();
}

Unlocked::~Unlocked() {
  if (--memory_.open_ == 0 && ++memory_.closed_ % closing_every == 0) memory_.allow(false);
}

}  // namespace fake_gpu
