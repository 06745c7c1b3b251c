// Writes files beside training: one job at a time, on a thread of its own. HDF5 is not made for several threads, so
// whoever else reads or writes models waits for this one first.
#pragma once

#include <functional>
#include <future>

namespace lockstep {

/// Its owner calls it from one thread.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  ~BackgroundWriter();  ///< waits; what the last job threw is lost
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  [[nodiscard]] bool busy() const;

  /// Waits for the job before, then starts this one. Throws what the one before threw.
  void start(std::function<void()> job);

  /// Waits; throws what the job threw.
  void wait();

 private:
  std::future<void> job_;
};

}  // namespace lockstep
