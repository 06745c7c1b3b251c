// The played device's memory: a part of the address space that the host may not touch but while the device runs, so
// that a host that takes a device's pointer for its own crashes, as it does on a GPU. New memory is full of NaN.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace played {

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Null where there is not enough.
  [[nodiscard]] void* allocate(std::size_t bytes);

  /// False if nothing was allocated there.
  [[nodiscard]] bool release(void* memory);

  /// True if the bytes lie within one allocation.
  [[nodiscard]] bool holds(const void* memory, std::size_t bytes) const;

  /// True if they lie in the device's part of the address space.
  [[nodiscard]] bool is_device(const void* memory) const;

 private:
  friend class Unlocked;
  void allow(bool access);
  void fill_new();

  std::byte* base_;
  std::size_t used_ = 0;  ///< bytes that were ever allocated
  int open_ = 0;
  int closed_ = 0;  ///< how often
  bool allowed_ = false;
  std::map<std::size_t, std::size_t> blocks_;  ///< size by place
  std::vector<std::size_t> new_blocks_;        ///< to be filled before the device runs
};

/// The device runs: its memory can be touched as long as one of these lives.
class Unlocked {
 public:
  explicit Unlocked(Memory& memory);
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Memory& memory_;
};

}  // namespace played
