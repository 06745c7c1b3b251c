// The extension module lockstep._native: ProcessGroup, locks of directories and reports for Python. The functions
// release the interpreter's lock while they wait; a waiting main thread handles signals, so Ctrl-C works.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/net/host_id.hpp"
#include "collective/process_group.hpp"
#include "core/environment.hpp"
#include "ownership/directory_lock.hpp"
#include "ownership/job_identity.hpp"
#include "report/report_html.hpp"

#include <lockstep/core/error.hpp>

namespace nb = nanobind;
using namespace nb::literals;

namespace lockstep {
namespace {

template <typename Number>
using Array = nb::ndarray<Number, nb::c_contig, nb::device::cpu>;

void handle_signals() {
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();  // does nothing on other threads than the main one
}

template <typename Number>
std::vector<Number*> pointers_to(const std::vector<Array<Number>>& arrays) {
  std::vector<Number*> pointers;
  pointers.reserve(arrays.size());
  for (const Array<Number>& array : arrays) pointers.push_back(array.data());
  return pointers;
}

std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::pair<double, int> reduce(ProcessGroup& group, std::size_t reducer,
                              const std::vector<Array<const float>>& gradients,
                              const std::vector<Array<float>>& averages, double weight) {
  const std::vector<const float*> from = pointers_to(gradients);
  const std::vector<float*> to = pointers_to(averages);
  const nb::gil_scoped_release unlocked;
  const StepAgreement agreement = group.reduce(reducer, from, to, weight);
  return {agreement.weight, agreement.contributing};
}

std::pair<double, int> finish(ProcessGroup& group, std::size_t reducer, const std::vector<Array<float>>& averages) {
  const std::vector<float*> to = pointers_to(averages);
  const nb::gil_scoped_release unlocked;
  const StepAgreement agreement = group.finish(reducer, to);
  return {agreement.weight, agreement.contributing};
}

template <typename Gather>
nb::list gathered(const Gather& gather, const nb::bytes& bytes) {
  std::string own = text_of(bytes);
  std::vector<std::string> texts;
  {
    const nb::gil_scoped_release unlocked;
    texts = gather(std::move(own));
  }
  nb::list all;
  for (const std::string& text : texts) all.append(bytes_of(text));
  return all;
}

using Epoch = std::tuple<int, std::map<std::string, double>, double>;  ///< its number from 0, its logs, its seconds
using Texts = std::map<std::string, std::string>;

NamedValues named_values(const Texts& texts) {
  NamedValues values;
  for (const auto& [name, text] : texts) values[name] = text;
  return values;
}

std::string report_of(std::string model, const std::vector<Epoch>& epochs, std::int64_t workers, const Texts& world,
                      const Texts& versions, std::map<std::string, double> profile,
                      std::vector<GenerationRecord> generations) {
  RunReport report;
  report.model = std::move(model);
  for (const auto& [number, logs, seconds] : epochs)
    report.history.epochs.push_back({number, logs, seconds, std::numeric_limits<double>::quiet_NaN()});
  report.world = named_values(world);
  report.world["workers"] = workers;
  report.versions = named_values(versions);
  report.versions["lockstep"] = std::string(LOCKSTEP_VERSION);
  report.timing.profile_ms_per_step = std::move(profile);
  report.generations = std::move(generations);
  return report_html(report);
}

void add_reports(nb::module_& module) {
  nb::class_<GenerationRecord>(module, "GenerationRecord")
      .def(
          "__init__",
          [](GenerationRecord* self, std::uint64_t generation, std::uint64_t ranks, double began, double ended,
             std::string reason) {
            new (self) GenerationRecord{generation, ranks, began, ended, std::move(reason)};
          },
          "generation"_a, "ranks"_a, "began"_a, "ended"_a, "reason"_a)
      .def_rw("ended", &GenerationRecord::ended)
      .def_rw("reason", &GenerationRecord::reason);
  module.def("report_html", report_of, "model"_a, "epochs"_a, "workers"_a, "world"_a, "versions"_a, "profile"_a,
             "generations"_a);
}

/// A DirectoryLock that Python can end.
class HeldDirectory {
 public:
  HeldDirectory(std::filesystem::path directory, std::string program, const LockKeeper& keeper) {
    DirectoryOwner owner = identify_job(current_environment());
    owner.program = std::move(program);
    owner.host = host_name();
    lock_.emplace(std::move(directory), std::move(owner), keeper);
  }

  void require_held() const { held().require_held(); }
  [[nodiscard]] int descriptor() const { return held().file().number(); }
  void close() { lock_.reset(); }
  void release() {
    if (lock_) lock_->release_finished(false);
    close();
  }

 private:
  [[nodiscard]] const DirectoryLock& held() const {
    if (!lock_) throw InternalError("this lock of a directory was closed");
    return *lock_;
  }

  std::optional<DirectoryLock> lock_;
};

void add_locks(nb::module_& module) {
  nb::class_<HeldDirectory>(module, "DirectoryLock", nb::is_weak_referenceable())
      .def("require_held", &HeldDirectory::require_held, nb::call_guard<nb::gil_scoped_release>())
      .def("release", &HeldDirectory::release, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &HeldDirectory::close)
      .def("fileno", &HeldDirectory::descriptor);
  module.def(
      "lock_directory",
      [](std::filesystem::path directory, std::string program) {
        const nb::gil_scoped_release unlocked;
        return HeldDirectory(std::move(directory), std::move(program), LockKeeper());
      },
      "directory"_a, "program"_a);
}

/// Python's exceptions: lockstep.Error, and for each class below it the built-in exception that fits.
void add_exceptions(nb::module_& module) {
  const nb::object base = nb::exception<Error>(module, "Error", PyExc_RuntimeError);
  const auto bases = [&](PyObject* builtin) { return nb::make_tuple(base, nb::handle(builtin)); };
  nb::exception<InternalError>(module, "InternalError", base);
  nb::exception<PeerError>(module, "PeerError", bases(PyExc_ConnectionError));
  nb::exception<IoError>(module, "IoError", bases(PyExc_OSError));
  nb::exception<DataError>(module, "DataError", bases(PyExc_ValueError));
  nb::exception<UsageError>(module, "UsageError", bases(PyExc_ValueError));
}

}  // namespace
}  // namespace lockstep

NB_MODULE(_native, module) {
  using namespace lockstep;
  nb::set_leak_warnings(false);  // the group lives until the process ends
  module.attr("__version__") = LOCKSTEP_VERSION;
  add_exceptions(module);
  add_reports(module);
  add_locks(module);

  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<ProcessGroup>(module, "ProcessGroup")
      .def(
          "__init__",
          [](ProcessGroup* self, double timeout) {
            const nb::gil_scoped_release unlocked;
            new (self) ProcessGroup({.timeout = timeout, .while_caller_waits = handle_signals});
          },
          "timeout"_a)
      .def_prop_ro("rank", &ProcessGroup::rank)
      .def_prop_ro("host_of_rank", &ProcessGroup::host_of_rank)
      .def_prop_ro("description", &ProcessGroup::describe)
      .def_prop_ro("request", [](const ProcessGroup& self) { return static_cast<int>(self.request()); })
      .def(
          "make_reducer",
          [](ProcessGroup& self, const std::vector<std::size_t>& sizes, std::size_t bucket_elements, bool bfloat16,
             std::size_t sparse) {
            return self.make_reducer(sizes, bucket_elements,
                                     bfloat16 ? GradientCompression::bfloat16 : GradientCompression::none, sparse);
          },
          "sizes"_a, "bucket_elements"_a, "bfloat16"_a, "sparse"_a, Released())
      .def(
          "reduce",
          [](ProcessGroup& self, std::size_t reducer, const std::vector<Array<const float>>& gradients,
             const std::vector<Array<float>>& averages, double weight) {
            const auto [total, contributing] = reduce(self, reducer, gradients, averages, weight);
            return nb::make_tuple(total, contributing);
          },
          "reducer"_a, "gradients"_a, "averages"_a, "weight"_a)
      .def(
          "contribute",
          [](ProcessGroup& self, std::size_t reducer, std::size_t gradient, const Array<const float>& values,
             double weight) {
            const float* const data = values.data();
            const nb::gil_scoped_release unlocked;
            self.contribute(reducer, gradient, data, weight);
          },
          "reducer"_a, "gradient"_a, "values"_a, "weight"_a)
      .def("has_contributed", &ProcessGroup::has_contributed, "reducer"_a, "gradient"_a)
      .def(
          "finish",
          [](ProcessGroup& self, std::size_t reducer, const std::vector<Array<float>>& averages) {
            const auto [total, contributing] = finish(self, reducer, averages);
            return nb::make_tuple(total, contributing);
          },
          "reducer"_a, "averages"_a)
      .def(
          "lock_directory",
          [](const ProcessGroup& self, std::filesystem::path directory, std::string program) {
            const nb::gil_scoped_release unlocked;
            return HeldDirectory(std::move(directory), std::move(program), self.lock_keeper());
          },
          "directory"_a, "program"_a)
      .def("join",
           [](ProcessGroup& self) {
             JoinResult result;
             {
               const nb::gil_scoped_release unlocked;
               result = self.join();
             }
             return nb::make_tuple(result.steps, result.source, result.is_uneven);
           })
      .def(
          "all_reduce_sum32",
          [](ProcessGroup& self, const Array<float>& values) {
            const std::span<float> all(values.data(), values.size());
            const nb::gil_scoped_release unlocked;
            self.all_reduce_sum(all);
          },
          "values"_a)
      .def(
          "all_reduce_sum64",
          [](ProcessGroup& self, const Array<double>& values) {
            const std::span<double> all(values.data(), values.size());
            const nb::gil_scoped_release unlocked;
            self.all_reduce_sum(all);
          },
          "values"_a)
      .def(
          "broadcast",
          [](ProcessGroup& self, const nb::bytes& bytes, int root) {
            std::string text = text_of(bytes);
            {
              const nb::gil_scoped_release unlocked;
              text = self.broadcast(std::move(text), root);
            }
            return bytes_of(text);
          },
          "bytes"_a, "root"_a)
      .def(
          "all_gather",
          [](ProcessGroup& self, const nb::bytes& bytes) {
            return gathered([&](std::string own) { return self.all_gather(std::move(own)); }, bytes);
          },
          "bytes"_a)
      .def(
          "gather_sparse",
          [](ProcessGroup& self, std::size_t reducer, const nb::bytes& bytes) {
            return gathered([&](std::string own) { return self.gather_sparse(reducer, std::move(own)); }, bytes);
          },
          "reducer"_a, "bytes"_a)
      .def("barrier", &ProcessGroup::barrier, Released())
      .def("report", &ProcessGroup::report, "step"_a, "epoch"_a, "examples"_a, Released())
      .def("close", &ProcessGroup::close, Released())
      .def_static("report_error", &ProcessGroup::report_error, "message"_a)
      .def("fail", &ProcessGroup::fail, "message"_a, Released());
}
