#include "diff/cli/program_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "reference/slots/optimizers.h"

namespace shardproof::cli {
namespace {

constexpr std::uintmax_t kLargestFile = std::uintmax_t{256} << 20U;

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Error{path + ": is a folder, not a file"};
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return Error{path + ": is no regular file"};
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{fmt::format("{}: {}", path, std::strerror(errno))};
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return Error{path + ": is no regular file"};
  if (size > kLargestFile) {
    return Error{
        fmt::format("{}: has {} bytes, more than the {} that are read", path, size, kLargestFile)};
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return Error{path + ": could not be read to its end"};
  return text;
}

Result<ProgramFile> load_program(const std::string& file_or_name) {
  ProgramFile program;
  std::string text;
  std::error_code error;
  if (file_or_name.empty()) return Error{"\"\": no program named; give a file or an optimizer"};
  if (!std::filesystem::exists(file_or_name, error) &&
      file_or_name.find_first_of("./") == std::string::npos) {
    const auto shipped = optimizer_text(file_or_name);
    if (!shipped) {
      return Error{fmt::format("{}: no such file or optimizer; there are {}", file_or_name,
                               fmt::join(optimizer_names(), ", "))};
    }
    program.name = file_or_name + ".slots";
    text = *shipped;
  } else {
    Result<std::string> read = read_text_file(file_or_name);
    if (!read) return Error{read.error()};
    program.name = file_or_name;
    text = *std::move(read);
  }
  Result<ProgramText> parsed = parse_program(program.name, text);
  if (!parsed) return Error{parsed.error()};
  program.text = *std::move(parsed);
  if (program.text.assignments.empty()) {
    return Error{program.name + ": assigns nothing; is the file cut off?"};
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) program.lines.push_back(line);
  return program;
}

}  // namespace shardproof::cli
