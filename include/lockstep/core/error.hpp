// What can go wrong, as types: every error of Lockstep carries the exit code its program ends with.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Exit codes of every Lockstep program (sysexits.h where it has a fitting one).
enum class ExitCode : int {
  success = 0,
  usage = 64,      ///< wrong usage or configuration; a restart cannot mend it
  data = 65,       ///< bad data, or training that diverged (NaN loss); a restart cannot mend it
  internal = 70,   ///< a fault of Lockstep itself, or of a library below it
  io = 74,         ///< reading or writing failed
  temporary = 75,  ///< peers lost, or they never came; worth trying again
};

/// Base of all errors. `what()` is one sentence for a person: what is wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Wrong option, configuration or model description.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// A file or a value that is not what it claims to be.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};

/// A failed system call on a file or directory.
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(ExitCode::io, message) {}
};

/// A peer that is lost, late, or of another opinion.
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(ExitCode::temporary, message) {}
};

/// A broken invariant of ours, or a failed call into a library.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::internal, message) {}
};

}  // namespace lockstep
