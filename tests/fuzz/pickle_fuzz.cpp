// Fuzzes the reader of CIFAR's pickles. Any bytes must yield values or a DataError.
#include "data/pickle.hpp"
#include "seeds.hpp"
#include "support/python_pickle.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds{lockstep::testing::PythonPickle::of_cifar("labels", {1, 2}, "abcdef")};
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::Pickle pickle({data, size}, "input");
    (void)pickle.integers("labels");
    const lockstep::PickledArray array = pickle.byte_array("data");
    if (array.bytes.size() > size) std::abort();
  } catch (const lockstep::DataError&) {
    // expected for most inputs
  }
  return 0;
}
