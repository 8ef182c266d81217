// A model's answer as elements. Markup in the answer itself is shown as text; what marked makes of
// the rest passes DOMPurify, which lets only these elements and attributes through.
import {copy, icon_button, make} from "./dom.js";

const kTags = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code",
               "pre", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td",
               "a", "span"];
const kAttributes = ["href", "title", "class", "align", "start"];

const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

function highlighted(code, language) {
  return language && hljs.getLanguage(language) ? hljs.highlight(language, code, true).value
                                                : escaped(code);
}

marked.setOptions({gfm: true, breaks: true, headerIds: false, mangle: false,
                   highlight: (code, info) => highlighted(code, info?.split(/\s/)[0])});
marked.use({renderer: {
  html: text => /^<br\s*\/?>$/i.test(text) ? "<br>" : escaped(text),
  image: (address, title, text) => `<a href="${escaped(address ?? "")}">${text || "image"}</a>`,
  checkbox: checked => checked ? "☑ " : "☐ ",
}});
DOMPurify.addHook("afterSanitizeAttributes", element => {
  if (element.tagName !== "A") return;
  element.target = "_blank";
  element.rel = "noopener noreferrer nofollow";
});

export function rendered(text) {
  const fragment = DOMPurify.sanitize(marked.parse(text), {
    RETURN_DOM_FRAGMENT: true, ALLOWED_TAGS: kTags, ALLOWED_ATTR: kAttributes,
    ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, ALLOWED_URI_REGEXP: /^(https?:|mailto:|#)/i});
  for (const pre of fragment.querySelectorAll("pre")) {
    const language = /language-(\S+)/.exec(pre.firstElementChild?.className ?? "")?.[1] ?? "";
    const button = icon_button("copy", "Copy the code", () => copy(pre.textContent, button));
    const block = make("div", {className: "code"},
                       make("div", {className: "code-head"}, language, button));
    pre.replaceWith(block);
    pre.tabIndex = 0;  // it scrolls
    block.append(pre);
  }
  return fragment;
}
