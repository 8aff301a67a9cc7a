// Slot programs named on the command line: a file, or an optimizer that comes with the project.
#pragma once

#include <string>
#include <vector>

#include "reference/result.h"
#include "reference/slots/text.h"

namespace shardproof::cli {

struct ProgramFile {
  std::string name;                // as in messages: the file's path, or "adamw.slots"
  std::vector<std::string> lines;  // of the text
  ProgramText text;
};

// A name without a dot or slash is that of an optimizer, unless there is such a file.
Result<ProgramFile> load_program(const std::string& file_or_name);

// A file's bytes; an error names the option or nothing, the path and the reason.
Result<std::string> read_text_file(const std::string& path);

}  // namespace shardproof::cli
