// Chromium starts no Worker on pages that are opened from disk. There this one runs the worker's
// script in a hidden frame, so that the site's search works without a server.
"use strict";
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><body></body>";
      this.scope = new Promise((ready, failed) => {
        frame.addEventListener("load", () => {
          const scope = frame.contentWindow;
          scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
          const script = scope.document.createElement("script");
          script.src = url;
          script.addEventListener("load", () => ready(scope));
          script.addEventListener("error", failed);
          scope.document.body.append(script);
        }, {once: true});
      });
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.scope.then(scope => scope.dispatchEvent(new scope.MessageEvent("message", {data})));
    }
    terminate() {}
  };
}
