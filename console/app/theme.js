//! Colour theme: light, dark or the system's. A classic script in the head, since a module runs after the first paint and would
//! cause a white flash. Without storage the choice lasts until the page is closed.
(() => {
  const key = "throng-theme";
  let choice = "";
  try {
    choice = localStorage.getItem(key) ?? "";
  } catch {
    // Use the system's theme.
  }
  const apply = () => {
    if (choice) document.documentElement.dataset.theme = choice;
    else delete document.documentElement.dataset.theme;
  };
  apply();
  window.theme = {
    get choice() {
      return choice;
    },
    set choice(name) {
      choice = name;
      apply();
      try {
        localStorage.setItem(key, name);
      } catch {
        // For this page only.
      }
    },
  };
})();
