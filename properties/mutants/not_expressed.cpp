// Reported faults that a candidate's table cannot have, and why.
#include "properties/mutants/mutant.h"

namespace shardproof {

const std::vector<NotExpressed>& faults_not_expressed() {
  static const std::vector<NotExpressed> faults = {
      {"pytorch/pytorch#22192",
       "replicas with different counts: all replicas of a call have one N"},
  };
  return faults;
}

}  // namespace shardproof
