#pragma once

#include "cephalo/attention/attend.h"

namespace cephalo {

// The engine that will run, or an error when that is not the one asked for or required.
Engine choose_engine(const AttendOptions& options, const char* function);

// Null when the fused engine can do it. plan.h lists the reasons.
const char* why_fused_refuses(const AttendOptions& options);

}  // namespace cephalo
