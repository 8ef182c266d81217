// Conversations in the browser's localStorage: an index of titles, and an item for each
// conversation: {id, title, updated, settings, turns, draft, waiting}. A turn is {role: "user",
// text, files} or {role: "assistant", text, reasoning, calls, ...}; a file is {name, text, tokens}.
const kIndex = "fasa.chats", kChat = "fasa.chat.", kSettings = "fasa.settings";

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
function write(name, value) { localStorage.setItem(name, JSON.stringify(value)); }

export const last_settings = () => read(kSettings, {});
export const save_settings = settings => write(kSettings, settings);

// The latest first.
export const list = () => read(kIndex, []).sort((a, b) => b.updated - a.updated);
export const load = id => read(kChat + id, null);

export function fresh() {
  return {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 6), title: "",
          updated: Date.now(), settings: last_settings(), turns: [],
          draft: {text: "", files: []}, waiting: []};
}

let frozen = false;
// While frozen nothing is stored.
export function freeze(now) { frozen = now; }

// Returns false if the browser has no space left for it. An empty one is not
// stored, one with only a draft not listed.
export function save(chat) {
  if (chat.removed || frozen) return true;
  if (!chat.turns.length && !chat.draft.text && !chat.draft.files.length) {
    remove(chat.id);
    return true;
  }
  const {id, title, updated, settings, turns, draft, waiting} = chat;
  try {
    write(kChat + id, {id, title, updated, settings, turns, draft, waiting});
    if (turns.length) {
      write(kIndex, [...list().filter(one => one.id !== id), {id, title, updated}]);
    }
    return true;
  } catch {
    return false;
  }
}

export function remove(id) {
  write(kIndex, list().filter(one => one.id !== id));
  localStorage.removeItem(kChat + id);
}

export function on_change_elsewhere(handler) {
  addEventListener("storage", event => { if (event.key === kIndex) handler(); });
}
