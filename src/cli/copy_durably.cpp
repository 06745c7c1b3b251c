// See copy_durably.hpp.
#include "cli/copy_durably.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/file_system.hpp"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <vector>

namespace lockstep {

void copy_durably(const std::filesystem::path& from, const std::filesystem::path& target) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 20U;
  std::ifstream source(from, std::ios::binary);
  if (!source) throw_io_error("cannot read " + from.string(), errno);
  AtomicFile file(target);
  std::vector<char> piece(piece_bytes);
  while (source.read(piece.data(), static_cast<std::streamsize>(piece.size())) || source.gcount() > 0)
    file.write(std::as_bytes(std::span(piece).first(static_cast<std::size_t>(source.gcount()))));
  if (source.bad()) throw_io_error("cannot read " + from.string(), errno);
  file.commit();
}

}  // namespace lockstep
