// See aligned_buffer.hpp.
#include "core/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace lockstep {

namespace {
constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20U;

std::size_t round_up(std::size_t size, std::size_t alignment) {
  if (size > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  return (size + alignment - 1) / alignment * alignment;
}

/// Zeros that take no memory until they are used. `size`: a multiple of huge_page.
std::byte* map_huge_pages(std::size_t size) {
  // With room for the alignment, which is unmapped again.
  void* const mapping =
      mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();  // NOLINT(performance-no-int-to-ptr): as POSIX defines it
  auto* const begin = static_cast<std::byte*>(mapping);
  const std::size_t skipped = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  if (skipped > 0) (void)munmap(begin, skipped);
  (void)munmap(begin + skipped + size, huge_page - skipped);
  // A hint: without huge pages training is a few per cent slower.
  (void)madvise(begin + skipped, size, MADV_HUGEPAGE);
  return begin + skipped;
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  const bool is_mapped = size >= huge_page;
  const std::size_t rounded = round_up(size, is_mapped ? huge_page : cache_line);
  if (is_mapped) {
    data_ = {map_huge_pages(rounded), Free{rounded}};
  } else {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(cache_line, rounded)));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, rounded);
  }
}

void AlignedBuffer::release() noexcept {
  if (const std::size_t mapped = data_.get_deleter().mapped; mapped > 0) (void)madvise(data(), mapped, MADV_DONTNEED);
}

void AlignedBuffer::Free::operator()(std::byte* data) const noexcept {
  if (mapped > 0) {
    (void)munmap(data, mapped);
  } else {
    std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): the only place that frees this memory
  }
}

}  // namespace lockstep
