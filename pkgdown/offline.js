/* In place of pkgdown.js: contents of a page, copy buttons, tooltips and search, without code from other servers. */
(function () {
  "use strict";
  function each(selector, f) { Array.prototype.forEach.call(document.querySelectorAll(selector), f); }

  function contents() {
    var nav = document.getElementById("toc");
    if (!nav) return;
    var list = document.createElement("ul");
    list.className = "nav flex-column";
    each("main h2", function (heading) {
      var id = heading.id || (heading.parentNode && heading.parentNode.id);
      if (!id || nav.contains(heading)) return;
      var item = document.createElement("li"), link = document.createElement("a");
      link.className = "nav-link py-1";
      link.href = "#" + id;
      link.textContent = heading.textContent.trim();
      item.appendChild(link);
      list.appendChild(item);
    });
    nav.appendChild(list);
  }

  function copyButtons() {
    if (!navigator.clipboard) return;
    each("div.sourceCode", function (block) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "btn btn-sm btn-outline-secondary btn-copy-ex";
      button.textContent = "copy";
      button.addEventListener("click", function () {
        var code = block.querySelector("pre").textContent.replace(/^#>[^\n]*\n?/gm, "");
        navigator.clipboard.writeText(code).then(function () { button.textContent = "copied"; });
      });
      block.classList.add("hasCopyButton");
      block.insertBefore(button, block.firstChild);
    });
  }

  /* The index is a script, as a page that is opened from a disk may not fetch a file. */
  function withIndex(root, then) {
    if (window.elviSearchIndex) return then(window.elviSearchIndex);
    var script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = function () { then(window.elviSearchIndex); };
    document.head.appendChild(script);
  }

  function found(index, query) {
    var words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return index.map(function (page) {
      var title = (page.title + " " + page.what).toLowerCase();
      var text = [page.text, page.code, page.path].join(" ").toLowerCase();
      var score = 0;
      for (var i = 0; i < words.length; i++) {
        if (title.indexOf(words[i]) >= 0) score += 3;
        else if (text.indexOf(words[i]) >= 0) score += 1;
        else return null;
      }
      return { page: page, score: score };
    }).filter(Boolean).sort(function (a, b) { return b.score - a.score; }).slice(0, 12);
  }

  function search() {
    var input = document.getElementById("search-input");
    if (!input) return;
    var root = (input.getAttribute("data-search-index") || "search.json").replace(/search\.json$/, "");
    var list = document.createElement("div");
    list.className = "list-group search-found";
    input.parentNode.style.position = "relative";
    input.parentNode.appendChild(list);
    input.addEventListener("input", function () {
      list.textContent = "";
      if (input.value.trim().length < 2) return;
      withIndex(root, function (index) {
        list.textContent = "";
        var results = found(index, input.value);
        results.forEach(function (result) {
          var link = document.createElement("a");
          link.className = "list-group-item list-group-item-action py-1";
          link.href = root + result.page.path.replace(/^https?:\/\/[^/]*\//, "").replace(/^\//, "") + (result.page.id ? "#" + result.page.id : "");
          link.textContent = result.page.title + (result.page.what && result.page.what !== result.page.title ? ": " + result.page.what : "");
          list.appendChild(link);
        });
        if (!results.length) list.textContent = "No results";
      });
    });
    input.form && input.form.addEventListener("submit", function (e) { e.preventDefault(); });
  }

  document.addEventListener("DOMContentLoaded", function () {
    contents();
    copyButtons();
    search();
    if (window.bootstrap) each('[data-bs-toggle="tooltip"]', function (at) { new window.bootstrap.Tooltip(at); });
  });
})();
