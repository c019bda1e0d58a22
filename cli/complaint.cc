#include "cli/complaint.h"

#include <cstdio>
#include <exception>
#include <new>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/printable.h"
#include "cli/option_hints.h"
#include "cli/verbs.h"

namespace cephalo::cli {

Complaint complaint_of_current_exception() {
  try {
    throw;
  } catch (const ExitStatus& status) {
    return {"", status.value};
  } catch (const UsageError& error) {
    return {error.what(), kBadUsage};
  } catch (const Error& error) {
    return {with_flags(error.what()), kBadData};
  } catch (const std::bad_alloc&) {
    return {"out of memory", kBadData};
  } catch (const std::exception& error) {
    return {error.what(), kBadData};
  }
}

int complain(const Complaint& complaint) {
  if (complaint.text.empty()) return complaint.status;
  // Nobody may be listening; the status still tells.
  static_cast<void>(
      std::fputs(format_text("error: {}\n", printable(complaint.text)).c_str(), stderr));
  return complaint.status;
}

}  // namespace cephalo::cli
