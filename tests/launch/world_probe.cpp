// A rank that prints its world and then misbehaves on request.
//   world_probe hello       runs one all-reduce and exits
//   world_probe abort CODE  rank 1 aborts the world while the others wait for it in an all-reduce
//   world_probe spin        runs all-reduces forever
#include "cluster/world/mpi_support.hpp"
#include "cluster/world/world.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace {

/// All-reduces 11 MB, the size of keras_mnist's gradients: large enough for MPI's rendezvous protocol.
void sum_over(const lockstep::World& world) {
  std::vector<float> numbers(2'770'634, static_cast<float>(world.rank() + 1));
  lockstep::check_mpi(
      MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
      "MPI_Allreduce");
  const auto size = static_cast<float>(world.size());
  if (numbers.back() != size * (size + 1) / 2) throw lockstep::InternalError("the sum is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const lockstep::World world;
  std::cout << "rank " << world.rank() << " of " << world.size() << " on " << world.hosts() << " hosts, after "
            << lockstep::seconds_since_process_start() << " s" << std::endl;
  if (args.at(0) == "abort" && world.rank() == 1) lockstep::World::end_with_error(std::stoi(args.at(1)), "as asked");
  do {
    sum_over(world);
  } while (args.at(0) != "hello");
  std::cout << "summed" << std::endl;
}
