// Interactives without a kernel: the module that anywidget runs in JupyterLab is mounted here on a model in the page.
// The build puts this script into the head, and a call after every interactive, so that each is drawn before anything
// below it and nothing moves.
{
  const pageModel = (state) => {
    const listeners = new Map();
    const emit = (event) => (listeners.get(event) ?? []).forEach((callback) => callback());
    return {
      get: (name) => state[name],
      set(name, value) {
        if (state[name] === value) return;
        state[name] = value;
        emit(`change:${name}`);
        emit("change");
      },
      save_changes() {},
      on: (event, callback) => listeners.set(event, [...(listeners.get(event) ?? []), callback]),
      off: (event, callback) =>
        listeners.set(
          event,
          (listeners.get(event) ?? []).filter((other) => callback && other !== callback),
        ),
    };
  };

  globalThis.sdlMount = (mountPoint) => {
    const model = pageModel(JSON.parse(mountPoint.querySelector("script").textContent));
    const el = document.createElement("div");
    mountPoint.replaceChildren(el);
    mountPoint.sdlModel = model;
    mountPoint.dataset.mounted = "failed";
    try {
      globalThis.sdlInteractives[mountPoint.dataset.module].render({ model, el });
    } catch (error) {
      el.textContent = `This picture could not be drawn: ${error}`;
      throw error;
    }
    const sameKind = [
      ...document.querySelectorAll(`.sdl-interactive[data-module="${mountPoint.dataset.module}"]`),
    ];
    const section = el.querySelector("section[aria-label]");
    if (section && sameKind.length > 1) section.ariaLabel += ` ${sameKind.length}`;
    mountPoint.dataset.mounted = "true";
  };

  // A handle: a link such as #explorer:gamma=20 in the text sets that interactive again each time it is used, and opens
  // the folds around it. Interactives read the address themselves; see share in kit.js.
  addEventListener("click", (event) => {
    const handle = event.target.closest?.('article a[href^="#"][href*="="]');
    if (!handle || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(history.state, "", handle.getAttribute("href"));
    dispatchEvent(new Event("hashchange"));
  });
}
