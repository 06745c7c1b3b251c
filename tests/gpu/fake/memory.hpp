// The fake device's memory: an address range that is accessible only while the device runs, so that host code that
// dereferences a device pointer crashes, as it does on a GPU. New memory is filled with NaN.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace fake_gpu {

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns null if there is not enough memory.
  [[nodiscard]] void* allocate(std::size_t bytes);

  /// Returns false if `memory` was not allocated.
  [[nodiscard]] bool release(void* memory);

  /// True if the bytes are within one allocation.
  [[nodiscard]] bool holds(const void* memory, std::size_t bytes) const;

  /// True if the address is in the device's range.
  [[nodiscard]] bool is_device(const void* memory) const;

 private:
  friend class Unlocked;
  void allow(bool access);
  void fill_new();

  std::byte* base_;
  std::size_t used_ = 0;  ///< high-water mark of the allocations, in bytes
  int open_ = 0;
  int closed_ = 0;  ///< number of times that the last Unlocked was destroyed
  bool allowed_ = false;
  std::map<std::size_t, std::size_t> blocks_;  ///< size by offset
  std::vector<std::size_t> new_blocks_;        ///< to be filled with NaN before the device runs
};

/// Makes the device's memory accessible while an object of this type exists.
class Unlocked {
 public:
  explicit Unlocked(Memory& memory);
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Memory& memory_;
};

}  // namespace fake_gpu
