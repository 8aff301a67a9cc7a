// Trial: the device that a case is tried on, and where a case that was found wrong is left.
#pragma once

#include "diff/case_file.h"
#include "diff/unit_case.h"

namespace shardproof {

struct Trial {
  using Wrong = decltype(CaseFile::content);

  const DeviceMaker& make;
  Wrong wrong;  // in its own numbers
};

}  // namespace shardproof
