// The page: the conversation that is shown, its input, and the two sides.
import {model} from "./api.js";
import * as attachments from "./attachments.js";
import {mend, put_back, title_of, version_of, versions_at} from "./conversation.js";
import {$, icon_button, make, notice, number, problem, say} from "./dom.js";
import * as panel from "./panel.js";
import {all_runs, answer, run_of, stop} from "./runs.js";
import {begin_settings} from "./settings.js";
import {close_side, narrow, toggle} from "./sides.js";
import * as store from "./store.js";
import {answer_element, context_text, editor_element, fill_answer, user_element,
        waiting_element} from "./turns.js";

let chat = null;
const elements = new Map();  // of the shown conversation's turns

const phone = matchMedia("(pointer: coarse)");  // its keyboard has no Shift+Enter
const has_text = turn => turn.text.trim() !== "" || turn.files.length > 0;

// --- the conversation ---

function save(one) {
  if (!store.save(one)) {
    problem("The browser has no space left for this conversation: it is lost when the page is " +
            "closed. Delete others.");
  }
}

function open(one) {
  chat = all_runs().find(run => run.chat.id === one.id)?.chat ?? one;
  chat.waiting ??= [];
  sessionStorage.setItem("fasa.open", chat.id);
  show_all();
  show_draft();
  problem(chat.problem ?? "");
  chat.problem = "";
  show_latest(true);
  if (narrow.matches) toggle("chats", false);
  if (!phone.matches) $("text").focus();
}

function show_version(index, at) {
  if (run_of(chat)) return;
  chat.turns.splice(index, Infinity, ...version_of(versions_at(chat.turns, index), at));
  save(chat);
  show_all();
}

// Turns after which no answer came are `before`.
async function ask(one, before, said, versions) {
  one.updated = Date.now();
  one.problem = "";
  if (!one.title) one.title = title_of(one.turns[0]);
  if (one === chat) {
    problem("");
    show_latest(true);
  }
  say("Waiting for the answer");
  const error = await answer(one, versions, changed);
  if (one.turns.at(-1).role === "user") {
    one.turns = before;
    if (said) put_back(one, said);
    if (!one.turns.length) one.title = "";
  }
  one.problem = error?.message ?? "";
  const next = error || one.removed ? null : one.waiting.shift();
  if (error) for (const each of one.waiting.splice(0)) put_back(one, each);
  save(one);
  if (one === chat) {
    show_all();
    show_draft();
    if (error && error.status !== 401) problem(error.message);
    if (!error) say("Answer complete. " + (one.turns.at(-1)?.text ?? "").slice(0, 500));
  }
  show_list();
  if (next) send(one, next);
}

function send(one, said) {
  const before = [...one.turns];
  one.turns.push(said);
  return ask(one, before, said);
}

// Asks for the turn at `index` anew, which may be a new one.
function ask_again(index, said = null) {
  const before = [...chat.turns], others = versions_at(before, index);
  const versions = {others, at: others.length};
  chat.turns.splice(index, Infinity, ...(said ? [{...said, ...versions}] : []));
  return ask(chat, before, said, said ? {} : versions);
}

function submit() {
  const {text, files} = chat.draft;
  const said = {role: "user", text: model.chats ? text.trim() : text, files};
  if (!has_text(said)) return;
  const refused = attachments.refusal(said.files, used_tokens());
  if (refused) return problem(refused);
  chat.draft = {text: "", files: []};
  show_draft();
  if (!run_of(chat)) return void send(chat, said);
  chat.waiting.push(said);
  show_all();
  show_latest(true);
  say("The message is sent after the answer");
}

// --- showing it ---

const actions_of = turn => ({
  edit: () => edit(turn),
  again: () => { if (!run_of(chat)) ask_again(chat.turns.indexOf(turn)); },
  show: at => show_version(chat.turns.indexOf(turn), at),
});

function element_of(turn) {
  const actions = actions_of(turn);
  return turn.role === "user" ? user_element(turn, actions) : answer_element(turn, actions);
}

function show_welcome() {
  const text = !model.name ? ""
      : model.chats ? "What is said stays in this browser and on this server. " +
                      `${phone.matches ? "Attach text files" : "Drop text files here"} to ask ` +
                      "about them."
      : "This model has no chat template: it continues your text instead of answering it.";
  $("log").replaceChildren(make("div", {className: "welcome"},
    make("h2", {}, model.name || "fasa"), make("p", {}, text)));
}

function show_all() {
  const known = new Map(elements);
  elements.clear();
  for (const turn of chat.turns) elements.set(turn, known.get(turn) ?? element_of(turn));
  const waiting = chat.waiting.map(said => waiting_element(said, () => {
    chat.waiting.splice(chat.waiting.indexOf(said), 1);
    put_back(chat, said);
    show_all();
    show_draft();
  }));
  if (elements.size) $("log").replaceChildren(...elements.values(), ...waiting);
  else show_welcome();
  const last = chat.turns.at(-1);
  if (last?.role === "assistant") fill_answer(elements.get(last), last, run_of(chat) ?? null,
                                              actions_of(last));
  $("title").textContent = chat.title || "New conversation";
  document.title = [chat.title, "fasa"].filter(Boolean).join(" – ");
  show_state();
  show_latest();
}

function edit(turn) {
  if (run_of(chat)) return problem("Stop the answer first.");
  const editor = editor_element(turn, text => {
    elements.set(turn, element_of(turn));
    editor.replaceWith(elements.get(turn));
    if (text !== null) ask_again(chat.turns.indexOf(turn), {...turn, text: text.trim()});
    $("text").focus();
  });
  elements.get(turn).replaceWith(editor);
  editor.querySelector("textarea").focus();
}

function used_tokens() {
  return chat.turns.findLast(turn => turn.figures)?.figures.context ?? 0;
}

function show_state() {
  const running = Boolean(run_of(chat));
  $("stop").hidden = !running;
  const used = used_tokens();
  $("state").textContent = running ? "a new message waits for the answer"
      : used ? `${context_text(used)} tokens` : "";
}

// While an answer comes, at most a fifth of the time goes into showing it.
let due = 0, late = new Set(), cost = 0;
function changed(run) {
  const {turn} = run;
  if (!run.begun) {
    run.begun = run.saved = performance.now();
    save(run.chat);
    if (run.chat === chat) show_all();
    show_list();
  }
  if (performance.now() - run.saved > 2000) {
    run.saved = performance.now();
    save(run.chat);
  }
  late.add(turn);
  due ||= setTimeout(() => {
    due = 0;
    const begin = performance.now(), run_now = run_of(chat);
    if (run_now && late.has(run_now.turn)) {
      fill_answer(elements.get(run_now.turn), run_now.turn, run_now, actions_of(run_now.turn));
      show_latest();
    }
    late.clear();
    cost = performance.now() - begin;
  }, Math.max(40, 4 * cost));
}

// The end stays in view unless the user has scrolled up.
let following = true, last_top = 0;
function note_scrolling() {
  const log = $("log");
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 40) following = true;
  else if (log.scrollTop < last_top - 1) following = false;
}
function show_latest(jump) {
  note_scrolling();  // its event may still be to come
  if (jump) following = true;
  if (following) $("log").scrollTop = $("log").scrollHeight;
  last_top = $("log").scrollTop;
  $("latest").hidden = following || !elements.size;
}
$("log").onscroll = () => {
  note_scrolling();
  last_top = $("log").scrollTop;
  $("latest").hidden = following || !elements.size;
};
$("latest").onclick = () => show_latest(true);
new ResizeObserver(() => show_latest()).observe($("log"));

// --- the input ---

function show_draft() {
  $("text").value = chat.draft.text;
  show_files();
  fit_input();
}

function show_files() {
  attachments.show(chat.draft.files, used_tokens(), (files, text) => {
    chat.draft = {files, text: chat.draft.text + text};
    show_draft();
    $("text").focus();
  });
}

function fit_input() {
  if (CSS.supports("field-sizing", "content")) return;
  $("text").style.height = "auto";
  $("text").style.height = $("text").scrollHeight + "px";
}

async function attach(file) {
  const one = chat;
  one.draft.files.push(file);
  show_files();
  try {
    await attachments.count(file);
  } catch {
    file.failed = "tokens not counted";
  }
  if (one === chat) show_files();
}

async function attach_files(files) {
  problem("");
  for (const file of files) {
    const read = await attachments.read_file(file);
    if (read) attach(read);
  }
  $("text").focus();
}

let draft_timer = 0;
$("text").oninput = () => {
  chat.draft.text = $("text").value;
  fit_input();
  const one = chat;
  clearTimeout(draft_timer);
  draft_timer = setTimeout(() => store.save(one), 500);
};
$("text").onpaste = event => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    return attach_files(event.clipboardData.files);
  }
  const text = event.clipboardData.getData("text/plain");
  if (!attachments.is_long(text)) return;
  event.preventDefault();
  attach({name: "Pasted text", text, pasted: true});
  say("The pasted text is attached");
};
$("text").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !phone.matches) {
    event.preventDefault();
    submit();
  }
  const turn = chat.turns.findLast(one => one.role === "user");
  if (event.key === "ArrowUp" && !$("text").value && turn && !run_of(chat)) edit(turn);
};
$("form").onsubmit = event => {
  event.preventDefault();
  submit();
};
$("stop").onclick = () => stop(chat);
$("attach").onclick = () => $("chooser").click();
$("chooser").onchange = () => {
  attach_files([...$("chooser").files]);
  $("chooser").value = "";
};
document.ondragover = event => {
  event.preventDefault();
  document.querySelector("main").classList.add("drop");
};
document.ondragleave = event => {
  if (!event.relatedTarget) document.querySelector("main").classList.remove("drop");
};
document.ondrop = event => {
  event.preventDefault();
  document.querySelector("main").classList.remove("drop");
  if (event.dataTransfer.files.length) attach_files([...event.dataTransfer.files]);
};

// --- the list of conversations ---

function show_list() {
  $("chat-list").replaceChildren(...store.list().map(({id, title}) => {
    const runs = all_runs().some(run => run.chat.id === id);
    return make("li", {},
      make("button", {className: "open", "aria-current": id === chat.id, title,
                      onclick: () => open_id(id)},
           runs ? make("span", {className: "dot", role: "img", "aria-label": "answering"}) : null,
           make("span", {}, title)),
      icon_button("bin", `Delete “${title}”`, () => remove(id)));
  }));
}

function open_id(id) {
  save(chat);
  const one = store.load(id);
  open(one ? mend(one) : store.fresh());
  show_list();
}

function start_fresh() {
  if (chat.turns.length) open(store.fresh());
  else open(chat);
  show_list();
}

function remove(id) {
  const one = id === chat.id ? chat : all_runs().find(run => run.chat.id === id)?.chat ??
                                      store.load(id);
  stop(one);
  one.removed = true;
  store.remove(id);
  if (one === chat) open(store.fresh());
  show_list();
  notice(`Deleted “${one.title}”`, "Undo", () => {
    one.removed = false;
    save(one);
    open_id(id);
  });
}
$("fresh").onclick = start_fresh;
store.on_change_elsewhere(show_list);
// Leaving the page breaks its answers; what is stored says that they had not ended.
function leave() {
  for (const one of [chat, ...all_runs().map(run => run.chat)]) store.save(one);
  store.freeze(true);
  setTimeout(() => store.freeze(false), 2000);  // it stayed
}
addEventListener("beforeunload", leave);
addEventListener("pagehide", leave);

document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (!close_side()) stop(chat);
});

// --- the beginning ---

panel.on_reached_changed((reached, why) => {
  $("model").textContent = reached ? model.name : why;
  $("model").title = reached ? `contexts of ${number(model.context)} tokens` : "";
  show_all();
  for (const turn of chat.turns) {  // their figures have the model's context
    if (turn.role !== "assistant") continue;
    fill_answer(elements.get(turn), turn, run_of(chat)?.turn === turn ? run_of(chat) : null,
                actions_of(turn));
  }
  show_files();
  if (reached && chat.draft.files.length) attachments.measure().then(show_files, () => {});
});
begin_settings(() => chat, settings => {
  chat.settings = settings;
  save(chat);
});
const found = store.load(sessionStorage.getItem("fasa.open")) ?? store.load(store.list()[0]?.id);
open(found ? mend(found) : store.fresh());
show_list();
panel.watch();
document.addEventListener("visibilitychange", () => { if (!document.hidden) panel.watch(); });
