// See aligned_buffer.hpp.
#include "core/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace lockstep {

namespace {
constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20U;
}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  const std::size_t alignment = size >= huge_page ? huge_page : cache_line;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!data_) throw std::bad_alloc();
  // A hint: without huge pages training is a few per cent slower.
  if (alignment == huge_page) (void)madvise(data_.get(), rounded, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, rounded);
}

// NOLINTNEXTLINE(cppcoreguidelines-no-malloc): the only place that frees this memory
void AlignedBuffer::Free::operator()(std::byte* data) const noexcept { std::free(data); }

}  // namespace lockstep
