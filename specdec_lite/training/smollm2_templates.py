"""Word lists and templates of the chat prompts for SmolLM2; entries are separated by semicolons.

A change here changes the prompts, and with them the text that heads for SmolLM2 are trained on.
"""

CONCEPTS = """photosynthesis; gravity; inflation; the water cycle; black holes; vaccines; plate
tectonics; the French Revolution; machine learning; the Roman Empire; evolution; electric cars;
the stock market; jazz music; volcanoes; the human heart; recycling; solar energy; the Great Wall
of China; dinosaurs; the printing press; democracy; coral reefs; sleep; the Renaissance; magnets;
antibiotics; the moon; chess; glaciers; the silk road; bees; earthquakes; the immune system;
cryptography; the Industrial Revolution; rainbows; whales; compound interest; the internet; tides;
DNA; the Olympic Games; bridges; mountains; tea; the Cold War; migration of birds; steam engines;
vitamins; the periodic table; hurricanes; philosophy; meditation; nuclear power; the brain;
impressionism; supply and demand; rockets; bread; deserts; the solar system; robots; poetry; the
Amazon rainforest; bicycles; lasers; allergies; the calendar; maps; clouds; time zones; memory;
public libraries; batteries; insects; the Black Death; ballet; coffee; computer viruses; the
scientific method; wind turbines; the Middle Ages; negotiation; fossils; yoga; the nervous system;
trains; advertising; the speed of light; mushrooms; human rights; opera; seasons; the ozone layer;
encryption; gardening; ancient Egypt; budgeting; sound waves; the Vikings; public transport;
friction; taxes; octopuses; quantum computers; the violin; desertification; salt; the United
Nations; bacteria; aircraft wings; paper; the Enlightenment; wolves; probability; chocolate; the
Arctic; teamwork; telescopes; rice; folklore; digital cameras; the Panama Canal; empathy; sharks;
the wheel; caffeine; open-source software; rivers; statistics; the guitar; forest fires; zero;
the Aztecs; soil; procrastination; satellites; gothic architecture; honey; operating systems;
blood pressure; the Sahara; comets; journalism; glass; hibernation; databases; cheese; lightning;
the abacus; running; inertia; owls; the stock exchange; sculpture; tropical diseases; photography;
neural networks; the Mongol Empire; cotton; habit; elephants; radio; insulin; logic; crystals;
the Great Depression; snow; microscopes; language learning; lighthouses; dreams; urban planning;
penguins; carbon dioxide; game theory; origami; the pyramids; sugar; electricity; ethics; soccer;
web browsers; pottery; the Milky Way; leadership; ants; the theatre; water filters; algebra; wine;
first aid; the Baltic Sea; elections; hydropower; typography; cats; the Ottoman Empire; silk"""

PLURALS = """countries; fruits; planets; programming languages; books; movies; animals; cities;
rivers; tools; vegetables; musical instruments; sports; birds; desserts; mountains; inventions;
scientists; painters; vehicles; games; herbs; oceans; dances; museums; metals; trees; festivals;
professions; breakfast dishes; board games; laptops; flowers; employees; students; products;
orders; recipes; songs; customers; hotels; podcasts; islands; fish; soups; hobbies"""

KEYS = """name; year; price; colour; country; size; rating; author; population; weight; category;
description; language; duration; difficulty; age; id; email; quantity; genre; height; origin"""

CHARACTERS = """a shy lighthouse keeper; an old clockmaker; a curious fox; two rival bakers; a
young astronaut; a retired detective; a robot gardener; a lonely dragon; a street musician; a
talkative parrot; a night nurse; a stubborn goat; a girl who collects maps; a blind painter; a
train conductor; a forgetful wizard; twin sisters; a fisherman's son; a librarian; a boy with a
paper kite; a ghost; a marathon runner; a beekeeper; a small bear; an honest thief; a tired king;
a chess teacher; a deaf composer; a snail; a taxi driver; a grandmother; a knight without a horse;
a cartographer; a stray dog; a chemist; a tailor; a mountain guide; a child inventor; an owl; a
mechanic; a queen in disguise; a sailor; a translator; a weather forecaster; a cook; a time
traveller; a ferryman; a puppet maker"""

EVENTS = """finds a door that was not there before; loses the only key; receives a letter without
a sender; learns to swim; has to tell the truth; wakes up a hundred years later; hears a song that
nobody else hears; builds a boat; misses the last train; discovers a hidden garden; must choose
between two friends; breaks a promise; saves a stranger; makes a mistake that turns out well;
hides a treasure; follows a trail of footprints; meets an old enemy; wins a strange contest; is
afraid of the dark; finds an unfinished map; trades places with someone; plants a seed that grows
overnight; repairs an old radio; goes home for the first time in years; forgets a name; learns the
language of birds; is wrongly accused; paints a picture that comes alive; waits for the rain;
discovers who wrote the diary; gives away what was dearest; crosses a frozen lake; keeps a secret;
finds a message in a bottle; loses a shadow; opens a shop; teaches a class of one; is late for the
most important day"""

PLACES = """in a village by the sea; on the moon; in a crowded market; in a snowed-in cabin; at the
edge of a forest; in an empty theatre; on a night train; in a city of bridges; in a desert town; on
a small island; in an old library; under the sea; in a castle; at an airport; in the mountains; on
a farm; in a hospital; in a school after hours; on a river boat; in a submarine; in a museum; in a
bakery before dawn; in a valley of fog; at a fair; on a rooftop; in a bookshop; in the year 2300"""

TASKS = """reverses a string; checks whether a word is a palindrome; finds the largest number in a
list; counts the vowels in a text; computes the factorial of a number; returns the first n
Fibonacci numbers; checks whether a number is prime; removes duplicates from a list; sorts a list
of dictionaries by a key; merges two sorted lists; counts how often each word appears in a text;
reads a CSV file and sums one column; converts Celsius to Fahrenheit; flattens a nested list; finds
the longest word in a sentence; computes the greatest common divisor of two numbers; checks whether
two strings are anagrams; rotates a list by k places; finds the second smallest value; converts a
number to Roman numerals; validates an email address; generates a random password; computes the
mean and the median of a list; groups words by their first letter; finds all pairs that add up to a
target; computes the power of a number without operators; transposes a matrix; multiplies two
matrices; checks whether brackets are balanced; performs binary search; implements bubble sort;
implements quicksort; finds the intersection of two lists; counts the lines in a file; converts a
decimal number to binary; capitalises the first letter of every word; removes all punctuation from
a text; computes the Hamming distance of two strings; finds the missing number from 1 to n; returns
the n-th triangular number; checks whether a year is a leap year; computes the number of days
between two dates; finds the most common element; splits a list into chunks of a given size;
computes a moving average; draws a triangle of stars; prints a multiplication table; simulates
rolling two dice; shuffles a deck of cards; encodes a text with the Caesar cipher; decodes a
run-length encoded text; computes compound interest; finds the shortest path in a grid; traverses a
binary tree in order; inserts a value into a binary search tree; implements a stack; implements a
queue with two stacks; finds all permutations of a string; lists all subsets of a set; checks a
Sudoku row; computes the edit distance of two words; parses a query string; formats a number with
thousands separators; renames all files in a folder; downloads a web page and counts its links;
retries a call three times; measures how long another function takes; caches the results of another
function; reads a JSON file and prints its keys; writes a list to a text file; converts a list of
pairs to a dictionary; inverts a dictionary; filters even numbers; sums the digits of a number;
finds the longest common prefix; converts snake_case to camelCase; counts set bits; swaps two
variables; checks whether a number is a perfect square; finds the factors of a number; converts
seconds to hours and minutes; computes the area of a polygon; generates a multiplication quiz;
finds the first character that does not repeat; compresses a string; checks a credit card number;
evaluates an arithmetic expression; computes a checksum; finds a cycle in a linked list; reverses a
linked list; implements a priority queue; returns the calendar week of a date; wraps text at a
given width; compares two version numbers; computes the dot product of two vectors"""

OBJECTS = """Account; Inventory; Playlist; Matrix; Timer; Library; Car; Student; ShoppingCart;
Stack; Logger; Polygon; Recipe; Robot; Calendar; Counter; Queue; Vector; Thermostat; Elevator;
Ticket; Parser; Cache; Graph; Board; Deck; Wallet; Sensor; Room; Garden; Tree; Fraction"""

METHODS = """add; remove; total; reset; describe; update; is_empty; save; load; search; sort; merge;
undo; start; stop; copy; count; move; compare; validate; report; next; scale; rename"""

LANGUAGES = """Python; Python; Python; Python; Python; JavaScript; Java; C++; Rust; Go; Bash"""

NAMES = """Maria; Kenji; Amara; Lukas; Priya; Tom; Fatima; Diego; Ingrid; Wei; Olga; Samuel; Leila;
Noah; Chloe; Marco; Aisha; Erik; Hana; Pablo; Ruth; Viktor; Nina; Omar"""

CITIES = """Lisbon; Osaka; Nairobi; Vienna; Toronto; Lima; Oslo; Mumbai; Cairo; Dublin; Seoul;
Prague; Quito; Perth; Athens; Austin; Warsaw; Hanoi; Bergen; Accra; Porto; Denver"""

JOBS = """nurse; carpenter; teacher; pilot; baker; engineer; farmer; lawyer; musician; plumber;
chemist; photographer; translator; chef; librarian; electrician; architect; vet; gardener; tailor"""

QUESTIONS = """What is {concept}?; Explain {concept} to a ten-year-old.; Why is {concept}
important?; Give me three facts about {concept}.; What are common misconceptions about {concept}?;
How has {concept} changed over the last hundred years?; What should a beginner know about
{concept}?; What do {concept} and {concept2} have in common?; Compare {concept} with {concept2}.; I have
to give a short talk on {concept}. What should I say?; How does {concept} affect everyday life?;
What would the world be like without {concept}?; List five questions one could ask an expert on
{concept}.; Who were the most important people in the history of {concept}?; How can I learn more
about {concept}?; Is it hard to understand {concept}? Why?; What problem does {concept} pose
today?; Give a definition of {concept}, then an example.; What are the pros and cons of {concept}?;
How would you explain {concept} to my grandmother?; What is the connection between {concept} and
{concept2}?; Describe {concept} in exactly two sentences.; What did people believe about {concept} in
the past?; My friend {name} from {city} works as a {job} and asks about {concept}. What can I
answer?; I am a {job}. Why should I care about {concept}?"""

STORIES = """Write a short story about {character} who {event} {place}.; Tell me a story: {character}
{event} {place}.; Write the first paragraph of a novel in which {character} {event} {place}.; Write
a fairy tale about {character} who {event}.; Write a funny story about {character} who {event}
{place}.; Write a sad story about {character}, {place}.; Write a poem about {character} who
{event}.; Write a bedtime story for a child named {name} about {character} who {event}.; Write a
dialogue between {character} and {character2} {place}.; Continue this story: "It was a quiet evening
when {character} stood {place}."; Write a story with a surprising end in which {character} {event}.;
Write a letter from {character} to {character2}."""

JSONS = """Write a JSON object that describes {concept} with the keys {key}, {key2} and {key3}.;
Give me a JSON list of {number} {plural} with the keys {key} and {key2}.; Return only JSON: {number}
{plural}, each with {key}, {key2} and {key3}.; Turn this sentence into JSON: {name} is a
{age}-year-old {job} from {city}.; Extract the data as JSON: "{name}, {age}, lives in {city} and
works as a {job}, and {name2}, {age2}, works as a {job2} in {city2}."; Make a JSON array of
{number} quiz questions about {concept}, each with a question and an answer.; Write a JSON schema
for {plural} with the fields {key}, {key2} and {key3}.; Create a JSON configuration file for a shop
in {city} that sells {plural}.; Convert to JSON: {key}={age}, {key2}={city}, {key3}={name}.; Write
{number} example records about {plural} in JSON with the fields {key}, {key2} and {key3}."""

CODES = """Write a {language} function that {task}.; Write a {language} function that {task}, with a
test.; How do I write a {language} function that {task}?; Write a {language} program that {task},
and explain it step by step.; Show me two ways to write a function in {language} that {task}.; Write
a well documented {language} function that {task}.; Write a {language} function that {task}, and
another that {task2}.; Write a {language} class {object} with the methods {method} and {method2}.;
Write a class {object} in {language} with {method}, {method2} and {method3}, and show how it is
used."""

TEXT_EDITS = """Rewrite this text in simpler words:; Rewrite this text in the past tense:; Make this
text shorter, but keep its meaning:; Turn this text into a list of bullet points:; Correct the
spelling mistakes in this text, and change nothing else:; Rewrite this text in a friendly tone:;
Rewrite this text as a dialogue between a teacher and a student:; Repeat this text, but replace
every "is" by "was":; Rewrite this text for a newspaper:; Add a title to this text and repeat it:;
Put every sentence of this text on a line of its own:; Rewrite this text in the first person:"""

CODE_EDITS = """Add a docstring to this function:; Add type hints to this function:; Add a comment
to every line of this code:; Rename the variables of this code so that they say what they mean:;
Rewrite this code so that it is easier to read:; Add a check of the arguments to this function:;
Repeat this code, but rename the function to `{method}_{plural}`:; Translate this Python code to
JavaScript:; Add a print statement at the beginning of this function:"""

EXPLANATIONS = """Explain what this code does:; Write a test for this function:; Find possible bugs
in this code:; What does this function return? Explain line by line:"""

ABOUT_FUNCTIONS = (
    "What does a Python function named `{name}` probably do?",
    'The documentation of `{name}` says: "{says}" What does that mean?',
    'When would I need a function that is described as "{says}"?',
    "Explain the name `{name}` to a beginner.",
)
FROM_DOCSTRINGS = (
    "Write a Python function `{signature}` It should do this: {says}",
    'Complete this function:\n\n```python\n{signature}\n    """{says}"""\n```',
    "Write Python code for this: {says}",
)
SHARES = {"question": 0.6, "code": 0.6}
"""Kind → fraction of its prompts made from word lists; the others are about library functions."""

SUMMARIES = """Summarise this text in one sentence:; Summarise the following text:; Give me the three
most important points of this text:; What is this text about?; Write a summary of at most 40 words:;
Explain this text to somebody who does not program:; What is the main idea of the following text?;
Write a headline and a short summary for this text:; Which questions does this text answer?"""
