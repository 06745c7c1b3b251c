// Prints what Lockstep reads from a Keras file as JSON, which the tests compare, and writes it to COPY. The weights of
// a .weights.h5 file are loaded into the model of MODEL. For a .json file (Keras' model.to_json()) it prints only the
// model.
//   interop_read_model FILE [COPY [MODEL]]
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_file.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

using nlohmann::json;

/// Shape, sum, and a checksum that depends on the order: the sum of (index + 1) x bits modulo 2^64.
json describe(const std::vector<NamedTensor>& tensors) {
  json list = json::array();
  for (const NamedTensor& tensor : tensors) {
    double sum = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, &tensor.values[i], sizeof word);
      sum += tensor.values[i];
      bits += (i + 1) * word;
    }
    const auto extents = tensor.shape.extents();
    list.push_back({{"name", tensor.name},
                    {"shape", std::vector<std::int64_t>(extents.begin(), extents.end())},
                    {"sum", sum},
                    {"bits", bits}});
  }
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: interop_read_model FILE [COPY [MODEL]]\n";
    return static_cast<int>(ExitCode::usage);
  }
  try {
    if (std::string_view(argv[1]).ends_with(".json")) {
      std::ifstream file(argv[1]);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      std::cout << json{{"model", json::parse(architecture_to_json(model_from_json(text)))}}.dump() << '\n';
      return 0;
    }
    const ModelData model = argc == 4 ? load_keras_weights(argv[1], load_model(argv[3])) : load_model(argv[1]);
    json result{{"model", json::parse(architecture_to_json(model.architecture))}, {"weights", describe(model.weights)}};
    if (model.compile_state) {
      result["training"] = json::parse(training_config_to_json(*model.compile_state));
      result["iteration"] = model.compile_state->iteration;
      for (std::uint64_t step = 0; step < 100; ++step) {
        result["learning_rates"].push_back(learning_rate_of(model.compile_state->optimizer).at(step));
      }
      result["slots"] = describe(model.compile_state->slots);
    }
    if (argc > 2) save_model(argv[2], model);
    std::cout << result.dump() << '\n';
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(ExitCode::internal);
  }
  return 0;
}
