// See digest_of_file.hpp.
#include "core/digest_of_file.hpp"

#include "core/digest.hpp"
#include "core/file_system.hpp"

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <ios>
#include <iterator>
#include <vector>

namespace lockstep {

std::string digest_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20U);
  Digest digest;
  while (stream.read(block.data(), std::ssize(block)) || stream.gcount() > 0)
    digest.add(block.data(), static_cast<std::size_t>(stream.gcount()));
  if (!stream.eof()) throw_io_error("cannot read " + file.string(), errno);
  return digest.to_string();
}

}  // namespace lockstep
