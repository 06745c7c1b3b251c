// Measures MPI's all-reduce in the world that this process belongs to, whichever launcher formed it:
//   allreduce_probe BYTES SECONDS
// Rank 0 prints the number of ranks and hosts, and the median time.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "cluster/world/mpi_support.hpp"
#include "cluster/world/world.hpp"
#include "core/clock.hpp"

namespace {

double time_one(std::vector<float>& numbers) {
  lockstep::check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  const double began = lockstep::monotonic_seconds();
  lockstep::check_mpi(
      MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
      "MPI_Allreduce");
  return lockstep::monotonic_seconds() - began;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const lockstep::World world;
  std::vector<float> numbers(std::stoul(args.at(0)) / sizeof(float));
  for (int i = 0; i < 3; ++i) (void)time_one(numbers);
  const double end = lockstep::monotonic_seconds() + std::stod(args.at(1));
  std::vector<double> times;
  for (int more = 1; more != 0;) {
    times.push_back(time_one(numbers));
    more = lockstep::monotonic_seconds() < end ? 1 : 0;
    lockstep::check_mpi(MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  if (!world.is_chief()) return 0;
  std::cout << world.size() << " ranks on " << world.hosts() << " hosts: " << 1000 * times[times.size() / 2]
            << " ms per all-reduce (" << times.size() << " times)" << std::endl;
}
