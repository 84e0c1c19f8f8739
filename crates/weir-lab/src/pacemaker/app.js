// The application: serves the name of its host on port 3000.
const name = require("os").hostname();
require("http").createServer((request, response) => response.end(`Up ${name}\n`)).listen(3000);
