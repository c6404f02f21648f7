// Files to explain: dropped or chosen, sent to /api/explain/files, answered as `ridge explain FILE...`.
import { useEffect, useState } from "preact/hooks";
import { queryOf, type Problem, type View } from "../api";
import { bytes } from "../format";
import { clear, drop, dropped, remove } from "../dropped";
import { request, statusText } from "../request";
import { config, get, kDefaults, kObserved, renamed } from "../state";
import type { Explanation } from "../types";

const kMost = 2 ** 28; // bytes; src/page/explain_files.h has the same
const kPause = 300; // ms after the last change before the files are sent

// The line of JSON that precedes the bytes. What was typed counts beside the files.
function head(files: readonly File[], fromFiles: boolean): string {
  const options: Record<string, string> = fromFiles ? {} : { model: kDefaults["model"] as string, machine: kDefaults["machine"] as string };
  const typed = kObserved.map(renamed);
  for (const [name, value] of new URLSearchParams(queryOf("explain", config.value).split("?")[1])) {
    if (!fromFiles || typed.includes(name)) options[name] = value;
  }
  return JSON.stringify({ options, files: files.map(({ name, size, lastModified }) => ({ name, bytes: size, modified_s: lastModified / 1000 })) });
}

async function send(files: readonly File[], line: string, abort: AbortSignal): Promise<Explanation> {
  const response = await request("/api/explain/files", {
    method: "POST", headers: { "Content-Type": "application/x-ridge-files" }, body: new Blob([line, "\n", ...files]), signal: abort,
  });
  const answer = (await response.json()) as Explanation & { error?: Problem };
  if (!response.ok) throw answer.error ?? { message: statusText(response) };
  return answer;
}

// The answer to the files that are there, or none.
export function useFiles(): View<Explanation> {
  const { files, fromFiles } = dropped.value;
  const [view, show] = useState<View<Explanation>>({ data: null, error: null, busy: false });
  const line = files.length ? head(files, fromFiles) : "";
  useEffect(() => {
    if (!line) return show({ data: null, error: null, busy: false });
    if (files.reduce((sum, file) => sum + file.size, 0) > kMost) {
      return show({ data: null, busy: false, error: { message: `more than ${bytes(kMost)} in all; on the command line: ridge explain FILE...` } });
    }
    const abort = new AbortController();
    show((v) => ({ ...v, busy: true }));
    const timer = setTimeout(() => {
      send(files, line, abort.signal).then(
        (data) => show({ data, error: null, busy: false }),
        (reason: unknown) => {
          if (abort.signal.aborted) return;
          const error = reason instanceof Error ? { message: "the files could not be sent: is `ridge serve` still running, and are they still there?" } : (reason as Problem);
          show({ data: null, error, busy: false });
        },
      );
    }, kPause);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [files, line]);
  return view;
}

// Handlers of an element on which files may be dropped.
export const dropTarget = {
  onDragOver: (event: DragEvent) => event.preventDefault(),
  onDrop: (event: DragEvent) => {
    event.preventDefault();
    drop(event.dataTransfer?.files ?? []);
  },
};

export function Files({ busy }: { busy: boolean }) {
  const { files, fromFiles } = dropped.value;
  const choose = (from: boolean) => () => (dropped.value = { files, fromFiles: from });
  return (
    <div class="drop">
      <label>Drop metrics pages, traces, profiles, benchmark results or logs here, or choose them:{" "}
        <input type="file" multiple onChange={(e) => { drop(e.currentTarget.files ?? []); e.currentTarget.value = ""; }} />
      </label>
      {files.length > 0 && (
        <>
          <ul>{files.map((file) => (
            <li key={file}><code>{file.name}</code> <small>{bytes(file.size)}</small> <button type="button" class="link" onClick={() => remove(file)} aria-label={`Remove ${file.name}`}>remove</button></li>
          ))}</ul>
          <div class="chips" role="group" aria-label="Model and machine">
            <span class="label">Model and machine</span>
            <button type="button" class="chip" aria-pressed={fromFiles} onClick={choose(true)}>from the files</button>
            <button type="button" class="chip" aria-pressed={!fromFiles} onClick={choose(false)}>{get("model")} on {get("machine")}</button>
            <button type="button" class="chip" onClick={clear}>Remove all</button>
          </div>
          <p class="note" role="status">{busy ? "Reading…" : ""}</p>
        </>
      )}
    </div>
  );
}
