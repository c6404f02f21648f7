// Asks a person for the key of the server. Where the dialog is closed without one, a line of the page
// opens it again, and the requests go on waiting.
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { giveKey, keyWanted } from "./request";

function Dialog({ again, taken, close }: { again: boolean; taken: () => void; close: () => void }) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const [key, type] = useState("");
  const [problem, tell] = useState("");
  const [busy, wait] = useState(false);
  useLayoutEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close(); // the focus returns to where it was
  }, []);
  const send = async () => {
    if (busy) return;
    wait(true);
    tell("");
    const wrong = await giveKey(key);
    if (!wrong) return taken();
    wait(false);
    tell(wrong);
    input.current?.focus();
    input.current?.select();
  };
  return (
    <dialog class="login" ref={dialog} aria-labelledby={`${id}t`} onClose={close}>
      <form onSubmit={(e) => { e.preventDefault(); void send(); }}>
        <h2 id={`${id}t`}>This server asks for a key</h2>
        <p class="note">{again
          ? "The key that was given is not taken any more, or this browser keeps no cookies of this page."
          : <>It was started with <code>--api-key</code> or <code>RIDGE_API_KEY</code>. This browser keeps a cookie in the key's place.</>}</p>
        <label for={id}>API key</label>
        <input id={id} ref={input} name="key" type="password" autocomplete="off" spellcheck={false} value={key} onInput={(e) => type(e.currentTarget.value)}
          aria-invalid={problem !== ""} aria-describedby={`${id}e`} />
        <p class="error" id={`${id}e`} role="alert">{problem}</p>
        <div class="buttons">
          <button type="submit" class="primary" disabled={!key}>Log in</button>
          <button type="button" name="not-now" onClick={() => dialog.current?.close()}>Not now</button>
        </div>
      </form>
    </dialog>
  );
}

export function KeyDialog() {
  const [closed, putAside] = useState(false);
  const [again, takeKey] = useState(false);
  if (!keyWanted.value) return null;
  // A dialog that closes because its key was taken was not put aside.
  if (!closed) return <Dialog again={again} taken={() => takeKey(true)} close={() => keyWanted.value && putAside(true)} />;
  return <p class="error keyless" role="status">This server asks for a key. <button type="button" name="enter-key" onClick={() => putAside(false)}>Enter the key</button></p>;
}
