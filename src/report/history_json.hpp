// Formats MODEL_DIR/history.json: the configuration of a run, its metrics by epoch, and its timing. The caller writes
// the file.
#pragma once

#include <lockstep/core/history.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/generation_record.hpp"
#include "report/picture.hpp"

namespace lockstep {

/// Named values, e.g. {{"epochs", 10}, {"deterministic", false}}.
using NamedValues = std::map<std::string, std::variant<bool, std::int64_t, std::uint64_t, double, std::string>>;

/// Of the process that wrote it: a run that was restarted counts from its restart.
struct RunTiming {
  double seconds_to_first_step = std::numeric_limits<double>::quiet_NaN();  ///< from the start of the process
  double peak_memory_mb = std::numeric_limits<double>::quiet_NaN();         ///< of the chief
  std::int64_t steps = 0;
  std::int64_t backups = 0;
  std::int64_t skipped_backups = 0;                           ///< due while another one was being written
  double ms_per_backup = 0;                                   ///< of the training thread; a background thread writes
  std::map<std::string, double> profile_ms_per_step = {};     ///< by kind of work; "total" is their sum
  std::map<std::string, double> operations_ms_per_step = {};  ///< by operation and layer
};

/// A picture that a classifier takes for another class.
struct Mistake {
  Picture picture;
  std::size_t expected = 0;   ///< its class
  std::size_t predicted = 0;  ///< the class of the largest output
};

struct Mistakes {
  std::vector<Mistake> shown;
  std::size_t examined = 0;  ///< examples among which these are all
};

struct RunReport {
  std::string model;            ///< the program's name
  std::string file;             ///< the name of the model that the run saved last
  std::uint64_t iteration = 0;  ///< of that model: optimizer steps
  History history;
  Logs evaluation;       ///< of the last evaluate(); empty without one
  Mistakes mistakes;     ///< of the same; only for report.html
  NamedValues config;    ///< the program and its options, without those for developers
  NamedValues world;     ///< workers, hosts, communication, device
  NamedValues versions;  ///< lockstep, onednn, mpi, hdf5, ...
  RunTiming timing;
  std::vector<GenerationRecord> generations = {};  ///< the last one is the writer's, up to now
  bool is_live = false;                            ///< training goes on: pages load themselves again
};

/// Returns indented JSON that ends with a newline. NaN and infinity become null; invalid UTF-8 becomes U+FFFD. Epochs
/// count from 0 as in Keras' History, and each epoch's object holds its logs under their names.
[[nodiscard]] std::string history_json(const RunReport& report);

}  // namespace lockstep
