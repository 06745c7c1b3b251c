// See lockstep/core/history.hpp.
#include <lockstep/core/history.hpp>

#include <string>
#include <vector>

namespace lockstep {

std::vector<double> History::operator[](const std::string& metric) const {
  std::vector<double> values;
  for (const EpochRecord& record : epochs) {
    if (const auto found = record.logs.find(metric); found != record.logs.end()) values.push_back(found->second);
  }
  return values;
}

}  // namespace lockstep
