// Every compute operation of a step as Lockstep runs it, beside the bare kernel that does the same work: both models,
// local batches of 64 and 128 examples, float32 and bfloat16, one thread.
//
//   taskset -c 0 build/release/bin/operation_bench --benchmark_filter=keras_mnist/64/f32
//
// Rows come in pairs: keras_mnist/64/f32/dense_backward/dense/lockstep and .../bare. A bare row runs the fastest
// primitive of each part in sequence; its label names them. If a convolution has several algorithms, each part and
// algorithm also has its own row: .../bare_weights_winograd.
//
// convolution_rows.hpp adds 3 x 3 convolutions of many shapes by every algorithm: --benchmark_filter=convolution/
// multiply_add_row.hpp adds the CPU's limit: --benchmark_filter=limit/
#include "micro/convolution_rows.hpp"
#include "micro/multiply_add_row.hpp"
#include "micro/step_work.hpp"

#include <lockstep/core/error.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::bench;

/// Owns the work of the current job only, since each job takes up to 100 MB and jobs run one after the other.
class CurrentWork {
 public:
  StepWork& of(const Job& job) {
    if (!work_ || work_->job().name() != job.name()) {
      work_.reset();
      work_ = std::make_unique<StepWork>(job);
    }
    return *work_;
  }

 private:
  std::unique_ptr<StepWork> work_;
};

void add(const std::string& name, std::function<void(benchmark::State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))->Unit(benchmark::kMillisecond);
}

void run_all(benchmark::State& state, const std::vector<BareKernel>& kernels) {
  for (auto unused : state) {
    static_cast<void>(unused);
    for (const BareKernel& kernel : kernels) kernel.run();
  }
  state.SetLabel(describe(kernels));
}

/// Adds a row for one algorithm of one part, which this oneDNN or this CPU may lack.
void add_algorithm(CurrentWork& current, const Job& job, const Row& row, const std::string& part,
                   const std::string& algorithm) {
  add(job.name() + "/" + row.name + "/bare_" + part + "_" + algorithm,
      [&current, job, row, part, algorithm](auto& state) {
        std::vector<BareKernel> kernels = current.of(job).bare(row);
        std::erase_if(kernels,
                      [&](const BareKernel& kernel) { return kernel.part != part || kernel.algorithm != algorithm; });
        if (kernels.empty()) {
          state.SkipWithError("oneDNN does not implement this kernel on this CPU");
          return;
        }
        run_all(state, kernels);
      });
}

void add_row(CurrentWork& current, const Job& job, const Plan& plan, const Row& row) {
  add(job.name() + "/" + row.name + "/lockstep", [&current, job, row](auto& state) {
    StepWork& work = current.of(job);
    for (auto unused : state) {
      static_cast<void>(unused);
      work.run(row);
    }
    state.SetLabel(work.implementation(row));
  });
  const bool update = row.operations.empty();
  if (!update && !has_bare_kernel(plan.compute[row.operations.front()])) return;
  add(job.name() + "/" + row.name + "/bare",
      [&current, job, row](auto& state) { run_all(state, fastest(current.of(job).bare(row))); });
  if (update || !may_have_winograd(plan.graph, plan.compute[row.operations.front()])) return;
  const Operation& operation = plan.compute[row.operations.front()];
  std::vector<std::string> parts{"forward"};
  if (operation.kind == OperationKind::convolution_backward) {
    parts = {"weights"};
    if (operation.input_gradient) parts.emplace_back("data");
  }
  for (const std::string& part : parts) {
    for (const char* algorithm : {"direct", "winograd"}) add_algorithm(current, job, row, part, algorithm);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return static_cast<int>(ExitCode::usage);
    CurrentWork current;
    for (const Job& job : all_jobs()) {
      const Plan plan = plan_of(job);
      for (const Row& row : rows_of(plan)) add_row(current, job, plan, row);
    }
    add_convolution_rows();
    add_multiply_add_row();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "operation_bench: %s\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}
