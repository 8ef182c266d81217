// Turns of a conversation as elements.
import {model} from "./api.js";
import {copy, icon_button, make, number, seconds} from "./dom.js";
import {rendered} from "./markdown.js";
import {content_of, figures_of, is_empty, text_of_call} from "./runs.js";

const kFoldChars = 1200, kFoldLines = 14;

const kEnds = {length: "length limit", stopped: "stopped",
               error: "broken off", reload: "cut by a reload of the page"};

export function progress_text({total, cache, processed, time_ms}) {
  const text = `reading ${number(processed)} of ${number(total)} tokens`;
  const left = (total - processed) * time_ms / Math.max(1, processed - cache) / 1e3;
  return processed > cache && processed < total ? `${text}, ${Math.ceil(left)} s left` : text;
}

// The model's context is not known before the server has answered.
export const context_text = used =>
    `context ${number(used)}` + (model.context ? ` of ${number(model.context)}` : "");

export function figures_text(figures) {
  const {tokens, context, exact, first, speed} = figures;
  return [`${exact ? "" : "about "}${number(tokens)} tokens`,
          speed && `${speed.toFixed(speed < 10 ? 2 : 1)} tokens/s`,
          first && `first after ${seconds(first)}`,
          context_text(context)].filter(Boolean).join(" · ");
}

function attached(file) {
  const text = make("pre", {tabIndex: 0});
  const count = file.tokens ? ` · ${number(file.tokens)} tokens` : "";
  const details = make("details", {className: "attached"},
                       make("summary", {}, file.name + count), text);
  details.ontoggle = () => { text.textContent = details.open ? file.text : ""; };
  return details;
}

// Long texts are folded.
function said(text) {
  const body = make("div", {className: "said"}, text);
  if (text.length <= kFoldChars && text.split("\n").length <= kFoldLines) return [body];
  const label = () => body.classList.contains("folded")
      ? `Show all ${number(text.length)} characters` : "Show less";
  const more = make("button", {type: "button", className: "more", onclick() {
    body.classList.toggle("folded");
    more.textContent = label();
    more.setAttribute("aria-expanded", !body.classList.contains("folded"));
  }});
  body.classList.add("folded");
  more.textContent = label();
  more.setAttribute("aria-expanded", "false");
  return [body, more];
}

// "2/3" between buttons to the other versions of a turn; nothing if it has none.
function versions(turn, actions) {
  if (!turn.others) return [];
  const {at, others} = turn;
  const go = (icon, label, to) => Object.assign(icon_button(icon, label, () => actions.show(to)),
                                                {disabled: to < 0 || to > others.length});
  return [go("left", "Earlier version", at - 1),
          make("span", {className: "version"}, `${at + 1}/${others.length + 1}`),
          go("right", "Later version", at + 1)];
}

export function user_element(turn, actions) {
  const copying = icon_button("copy", "Copy", () => copy(turn.text || content_of(turn), copying));
  return make("article", {className: "turn user", "aria-label": "You"},
    make("div", {className: "bubble"}, ...turn.files.map(attached),
         ...(turn.text ? said(turn.text) : [])),
    make("div", {className: turn.others ? "tools chosen" : "tools"}, copying,
         icon_button("edit", "Edit and ask again", actions.edit), ...versions(turn, actions)));
}

export function waiting_element(turn, remove) {
  return make("article", {className: "turn user waits", "aria-label": "You, not sent yet"},
    make("div", {className: "bubble"}, ...turn.files.map(attached), ...said(turn.text)),
    make("div", {className: "tools"}, "sent after the answer",
         icon_button("close", "Take it back", remove)));
}

// The turn's text in a field; `done` gets the new text, or null.
export function editor_element(turn, done) {
  const area = make("textarea", {value: turn.text, "aria-label": "Your message"});
  const form = make("form", {className: "edit", onsubmit(event) {
    event.preventDefault();
    if (area.value.trim() || turn.files.length) done(area.value);
  }}, area, make("div", {className: "buttons"},
    make("button", {type: "button", onclick: () => done(null)}, "Cancel"),
    make("button", {className: "main"}, "Send")));
  area.onkeydown = event => {
    if (event.key === "Escape") { event.stopPropagation(); done(null); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  };
  return make("article", {className: "turn user", "aria-label": "Edit your message"}, form);
}

export function answer_element(turn, actions) {
  const element = make("article", {className: "turn assistant", "aria-label": "Answer"},
    make("details", {className: "thought", hidden: true}, make("summary"), make("div")),
    make("div", {className: "reading", hidden: true}, make("span")),
    make("div", {className: "body"}),
    make("div", {className: "calls"}),
    make("div", {className: "tools"}));
  fill_answer(element, turn, null, actions);
  return element;
}

function fill_reading(reading, turn, run) {
  const waits = Boolean(run) && is_empty(turn);
  reading.hidden = !waits;
  if (!waits) return;
  const progress = run.progress;
  reading.firstChild.textContent = progress ? progress_text(progress) : "waiting for its turn";
  let bar = reading.querySelector("progress");
  if (!progress) return;
  if (!bar) reading.append(bar = make("progress", {"aria-label": "Prompt read"}));
  bar.max = progress.total;
  bar.value = progress.processed;
}

// `run`: of the turn, null once it has ended.
export function fill_answer(element, turn, run, actions) {
  const [thought, reading, body, calls, tools] = element.children;
  element.setAttribute("aria-busy", Boolean(run));
  fill_reading(reading, turn, run);
  thought.hidden = !turn.reasoning;
  if (turn.reasoning) {
    thought.firstChild.textContent = turn.thought ? `Thought for ${seconds(turn.thought)}`
                                     : run ? "Thinking…" : "Thoughts";
    thought.lastChild.textContent = turn.reasoning.trim();
  }
  if (body.dataset.length !== String(turn.text.length)) {
    body.replaceChildren(model.chats ? rendered(turn.text)
                                     : make("div", {className: "said"}, turn.text));
    body.dataset.length = turn.text.length;
  }
  calls.replaceChildren(...(turn.calls ?? []).map(call =>
      make("pre", {tabIndex: 0, "aria-label": "Call of a tool"}, text_of_call(call))));
  if (run) {
    tools.replaceChildren(run.first ? make("span", {className: "figures"},
                                           figures_text(figures_of(run))) : "");
    return;
  }
  const copying = icon_button("copy", "Copy the answer", () => copy(turn.text, copying));
  const end = kEnds[turn.end];
  tools.replaceChildren(copying, icon_button("again", "Answer again", actions.again),
    ...versions(turn, actions),
    make("span", {className: "figures",
                  title: `${number(turn.figures?.cached ?? 0)} tokens of the prompt were cached`},
         [end, turn.figures && figures_text(turn.figures)].filter(Boolean).join(" · ")));
}
