// See inherited_dataset.hpp.
#include "cli/worker/inherited_dataset.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

std::vector<std::int64_t> extents_of(const json& array) { return array.at("shape").get<std::vector<std::int64_t>>(); }

template <typename Element>
SharedArray<Element> map(const json& array, const std::string& source) {
  std::size_t count = 1;
  for (const std::int64_t extent : extents_of(array)) count *= static_cast<std::size_t>(extent);
  const std::size_t bytes = count * sizeof(Element);
  if (bytes == 0) return {};
  const int descriptor = array.at("descriptor").get<int>();
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) < bytes) {
    throw DataError(fmt::format("{} is not in the memory that this process inherited", source));
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {  // NOLINT(performance-no-int-to-ptr): as POSIX defines it
    throw IoError(fmt::format("cannot map {}: {}", source, std::generic_category().message(errno)));
  }
  const std::shared_ptr<const void> owner(memory, [bytes](void* mapped) { (void)munmap(mapped, bytes); });
  return {owner, std::span(static_cast<const Element*>(memory), count)};
}

Shape shape_of_example(const json& array) {
  std::vector<std::int64_t> extents = extents_of(array);
  extents.erase(extents.begin());
  return Shape(std::move(extents));
}

}  // namespace

Dataset map_dataset(const json& description, const std::string& source) {
  Dataset data;
  data.source = source;
  data.is_refilled = description.value("refilled", false);
  for (const json& x : description.at("x")) {
    InputArray& input = data.inputs.emplace_back();
    input.name = x.value("name", "");
    input.shape = shape_of_example(x);
    if (x.at("type") == "uint8") {
      input.values = map<std::uint8_t>(x, source);
    } else if (x.at("type") == "float32") {
      input.values = map<float>(x, source);
    } else {
      throw DataError(fmt::format("{} has inputs of type {}", source, x.at("type").get<std::string>()));
    }
  }
  if (const json& weights = description.at("sample_weight"); !weights.is_null()) {
    data.sample_weights = map<float>(weights, source);
  }
  if (description.at("y").is_null()) return data;
  for (const json& y : description.at("y")) {
    TargetArray& target = data.targets.emplace_back();
    target.name = y.value("name", "");
    if (y.at("type") == "int32") {
      target.values = map<std::int32_t>(y, source);
    } else if (y.at("type") == "float32") {
      target.values = map<float>(y, source);
      target.shape = shape_of_example(y);
    } else {
      throw DataError(fmt::format("{} has targets of type {}", source, y.at("type").get<std::string>()));
    }
  }
  return data;
}

}  // namespace lockstep
