// What the server says to each request: the page, the API, health.
#pragma once

#include "base/work_limit.h"
#include "http/http.h"
#include "page/access.h"

namespace ridge {

class OpenAiServer;
class LabService;

// The answer to what is neither the OpenAI API's nor the lab's, after refuse_head(). Never throws:
// whatever goes wrong is a JSON error. A plan ends once `cancelled` is true.
HttpReply reply_to(const HttpRequest& request, const AccessRules& rules,
                   const Cancelled& cancelled = {});

// What refuse_head() refuses is refused before its body is read. /v1, /v1 with bodies above 1 MiB,
// /api, and what watches (metrics, the live page, its files) have lanes of their own, and health is
// told on the I/O thread, so that none waits for another. Health and metrics are told beyond the
// limits of connections, too.
HttpLimits page_limits(const AccessRules& rules, HttpLimits limits = {});

// reply_to() behind refuse_head() as a handler of the server, with the OpenAI API and the lab
// beside it unless they are null. Both must outlive it.
HttpHandler page_handler(AccessRules rules, OpenAiServer* api = nullptr, LabService* lab = nullptr);

}  // namespace ridge
