#include "predict/json.h"

namespace ridge {
namespace {

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// No step is without arithmetic, so a share of zero means that the peak is unknown.
Json known_share(double share) { return share > 0 ? Json(share) : Json(nullptr); }

Json phase_json(const StepEstimate& s) {
  Json on = Json::object();
  for (int i = 0; i < kTimedWalls; ++i) {
    on[std::string(wall_name(static_cast<Wall>(i)))] = s.on[i];
  }
  return Json{{"roof_s", s.roof_s},
              {"expected_s", s.expected_s},
              {"low_s", s.low_s},
              {"high_s", s.high_s},
              {"wall", wall_name(s.wall)},
              {"next_wall", wall_name(s.next_wall)},
              {"on_s", on},
              {"flops", s.flops},
              {"bytes", s.bytes},
              {"intensity", s.intensity()},
              {"mfu", known_share(s.mfu)},
              {"mbu", s.mbu}};
}

Json memory_json(const MemoryFit& m) {
  return Json{{"weights_bytes", m.weights},
              {"kv_bytes", m.kv},
              {"activation_bytes", m.activations},
              {"overhead_bytes", m.overhead},
              {"reserved_bytes", m.reserved},
              {"capacity_bytes", known(m.capacity)},
              {"fits", m.fits},
              {"max_batch", m.capacity ? Json(m.max_batch) : Json(nullptr)},
              {"max_context", m.capacity ? Json(m.max_context) : Json(nullptr)}};
}

Json plan_json(const Request& r) {
  const Plan& p = r.plan;
  return Json{{"weights", p.weights ? Json(p.weights->name) : Json(nullptr)},
              {"kv", p.kv ? p.kv->name : r.model->kv_format.name},
              {"activations", p.activations ? Json(dtype_name(*p.activations)) : Json(nullptr)},
              {"tp", p.tp},
              {"pp", p.pp},
              {"dp", p.dp},
              {"ep", p.ep},
              {"flash", p.flash},
              {"fusion", p.fusion},
              {"graphs", p.graphs},
              {"paging", p.paging},
              {"continuous", p.continuous},
              {"chunk", p.chunk},
              {"prefix_hit", p.prefix_hit},
              {"speculate", p.speculate},
              {"acceptance", p.acceptance},
              {"expert_skew", p.expert_skew},
              {"offload", p.offload}};
}

Json layouts_json(const std::vector<ParallelLayout>& layouts) {
  Json list = Json::array();
  for (const ParallelLayout& l : layouts) {
    list.push_back(Json{
        {"tp", l.tp}, {"pp", l.pp}, {"dp", l.dp}, {"ep", l.ep}, {"tokens_per_s", l.tokens_per_s}});
  }
  return list;
}

Json endpoint_json(const Request& r, const EndpointEstimate& s) {
  return Json{{"clients", *r.clients},         {"prompt", r.prompt}, {"output", r.output},
              {"running", s.running},          {"ttft_s", s.ttft_s}, {"tpot_s", s.tpot_s},
              {"tokens_per_s", s.tokens_per_s}};
}

Json ops_json(const std::vector<OpEstimate>& ops) {
  Json list = Json::array();
  for (const OpEstimate& op : ops) {
    list.push_back(Json{{"name", op.name},
                        {"phase", op.prefill ? "prefill" : "decode"},
                        {"kind", op_kind_name(op.kind)},
                        {"math", dtype_name(op.math)},
                        {"count", op.count},
                        {"flops", op.flops},
                        {"bytes", op.bytes},
                        {"intensity", op.intensity()},
                        {"roof_s", op.roof_s},
                        {"expected_s", op.expected_s},
                        {"wall", wall_name(op.wall)}});
  }
  return list;
}

}  // namespace

Json to_json(const Request& r, const Prediction& p) {
  Json prefill = phase_json(p.prefill), decode = phase_json(p.decode);
  prefill["prompt"] = r.prompt;
  decode["batch"] = r.batch;
  decode["context"] = r.context;
  decode["tokens_per_step"] = p.tokens_per_step;
  decode["tokens_per_s"] = p.tokens_per_s;
  decode["roof_tokens_per_s"] = p.roof_tokens_per_s;
  decode["tokens_per_s_per_user"] = 1 / p.tpot_s();
  decode["tokens_per_s_per_device"] = p.tokens_per_s / r.plan.devices();
  Json json{{"model", r.model->name},     {"machine", r.system.name()},
            {"stack", r.stack.name},      {"calibrated", r.stack.calibrated},
            {"basis", r.stack.basis},     {"devices", r.plan.devices()},
            {"math", dtype_name(p.math)}, {"plan", plan_json(r)},
            {"ttft_s", p.ttft_s()},       {"tpot_s", p.tpot_s()},
            {"prefill", prefill},         {"decode", decode}};
  json["layouts"] = layouts_json(r.layouts);
  json["mixed"] = p.mixed ? phase_json(*p.mixed) : Json(nullptr);
  json["serving"] = p.endpoint ? endpoint_json(r, *p.endpoint) : Json(nullptr);
  json["memory"] = memory_json(p.memory);
  json["dollars_per_mtok"] = known(p.dollars_per_mtok);
  json["joules_per_token"] = known(p.joules_per_token);
  json["notes"] = p.notes;
  json["ops"] = ops_json(p.ops);
  return json;
}

}  // namespace ridge
