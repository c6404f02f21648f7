// All animations on one page, for test/motion.mjs: #NAME?options.
import { render } from "preact";
import Attention from "../../src/motion/attention";
import Batching from "../../src/motion/batching";
import Kv from "../../src/motion/kv";
import Speculation from "../../src/motion/speculation";
import Step from "../../src/motion/step";
import Tiles from "../../src/motion/tiles";
import "../../src/style.css";

const all = { attention: Attention, batching: Batching, kv: Kv, speculation: Speculation, step: Step, tiles: Tiles };
const [name = "", query = ""] = location.search.slice(1).split("/");
const Shown = all[name as keyof typeof all];
render(<main><Shown config={Object.fromEntries(new URLSearchParams(query))} /></main>, document.body);
