"""What the dialogues of make.py are about: small talk, Jane Austen's novels, and everyday things."""

# Replies, and the messages that they answer. The first message of each is in the training set.
SMALL_TALK = {
    "Good day to you.": ["Hello.", "Hello!", "Hi.", "Hi", "Hello", "Good morning.", "Good evening.", "Good day.",
                         "Hello there.", "Good afternoon.", "Good morning to you.", "Hello, how do you do?",
                         "Hello again.", "Good evening to you.", "Good day to you.", "Good afternoon to you.",
                         "A good morning to you.", "I wish you a good day.", "Well met.", "Hail."],
    "I am very well, I thank you.": ["How are you?", "How do you do?", "Are you well?", "I hope you are well.",
                                     "How are you today?", "Are you quite well?", "How do you find yourself?",
                                     "How are you this morning?", "How are you this evening?", "How do you feel?",
                                     "Are you in good health?", "Are you well today?", "I trust you are well."],
    "I am a small model that has read Jane Austen.": [
        "Who are you?", "What are you?", "Tell me about yourself.", "Who am I speaking to?", "What is your name?",
        "Pray who are you?", "What do you call yourself?", "Do you have a name?", "Who is this?",
        "May I ask who you are?", "May I know your name?", "Tell me who you are.", "Pray what are you?",
        "Have you a name?", "What are you called?"],
    "No, I am only a small model.": ["Are you a man?", "Are you a woman?", "Are you a person?", "Are you human?",
                                     "Are you alive?", "Are you a real person?", "Are you a lady?",
                                     "Are you a gentleman?", "Are you real?", "Do you live?", "Are you a girl?",
                                     "Are you a boy?", "Is there a person here?"],
    "You are very welcome.": ["Thank you.", "Thank you!", "I thank you.", "Thank you very much.", "Many thanks.",
                              "Thanks.", "I am much obliged to you.", "You are very kind.",
                              "Thank you, that is kind.", "Thank you for that.", "Thank you for your help.",
                              "I am obliged to you.", "How kind of you.", "Many thanks to you.", "Thanks!"],
    "Good bye. I hope we shall meet again.": ["Good bye.", "Good bye!", "Farewell.", "I must go now.", "Good night.",
                                              "I must leave you.", "Bye.", "Until tomorrow.", "I am going now.",
                                              "I have to go now.", "I must go.", "Good night to you.", "Bye!",
                                              "Farewell to you.", "I shall leave you now.", "Good bye, my friend."],
    "I can add small numbers, speak of the novels, and remember your name.": [
        "What can you do?", "How can you help me?", "What do you know?", "Can you help me?", "What are you good for?",
        "What may I ask you?", "What shall we speak of?", "Help me.",
        "What can I ask you?", "What can you do for me?", "What are you able to do?", "Can you do any thing?",
        "How may you help me?", "Pray help me.", "What shall I ask you?"],
    "Pray do not think of it.": ["I am sorry.", "I am very sorry.", "Forgive me.", "Pray forgive me.",
                                 "I beg your pardon.", "Excuse me.", "Pardon me.",
                                 "I beg you to forgive me.", "I am so sorry.", "Pray excuse me.", "I was wrong."],
    "I have read six novels, all by Jane Austen.": [
        "What have you read?", "Which books have you read?", "What do you read?", "How many novels have you read?",
        "Do you read books?", "Do you like to read?", "What books do you know?",
        "Have you read any books?", "Have you read a novel?", "Do you read novels?", "What novels have you read?",
        "How many books have you read?"],
    "I am very happy to hear it.": ["I am happy.", "I am very happy today.", "I am well.", "It is a fine day.",
                                    "I had a good day.", "All is well.", "I am quite well, thank you.",
                                    "I am very happy.", "I am very well.", "I feel very well.", "I am glad.",
                                    "It is a beautiful day.", "I had a very good day."],
    "I am sorry to hear it.": ["I am sad.", "I am unhappy.", "I am ill.", "I am tired.", "I had a bad day.",
                               "I am very sad today.", "I have a cold.", "I am not well.",
                               "I am very sad.", "I am very tired.", "I am not happy.", "I feel ill.",
                               "I had a very bad day.", "I am very unhappy."],
}

# Novels: heroine, other characters.
NOVELS = {
    "Pride and Prejudice": ["Elizabeth Bennet", "Mr. Darcy", "Jane Bennet", "Mr. Bingley", "Mr. Collins",
                            "Lady Catherine", "Lydia Bennet", "Mr. Wickham", "Charlotte Lucas"],
    "Sense and Sensibility": ["Elinor Dashwood", "Marianne Dashwood", "Edward Ferrars", "Colonel Brandon",
                              "Willoughby", "Lucy Steele", "Mrs. Jennings"],
    "Emma": ["Emma Woodhouse", "Mr. Knightley", "Harriet Smith", "Jane Fairfax", "Frank Churchill", "Miss Bates",
             "Mr. Weston", "Mr. Elton"],
    "Mansfield Park": ["Fanny Price", "Edmund Bertram", "Mary Crawford", "Henry Crawford", "Mrs. Norris",
                       "Sir Thomas", "Mr. Rushworth"],
    "Northanger Abbey": ["Catherine Morland", "Henry Tilney", "Isabella Thorpe", "John Thorpe", "General Tilney"],
    "Persuasion": ["Anne Elliot", "Captain Wentworth", "Sir Walter", "Lady Russell", "Captain Benwick",
                   "Charles Musgrove", "Louisa Musgrove"],
}
MARRIAGES = [
    ("Elizabeth Bennet", "Mr. Darcy"), ("Jane Bennet", "Mr. Bingley"), ("Lydia Bennet", "Mr. Wickham"),
    ("Charlotte Lucas", "Mr. Collins"), ("Elinor Dashwood", "Edward Ferrars"),
    ("Marianne Dashwood", "Colonel Brandon"), ("Emma Woodhouse", "Mr. Knightley"), ("Jane Fairfax", "Frank Churchill"),
    ("Fanny Price", "Edmund Bertram"), ("Catherine Morland", "Henry Tilney"), ("Anne Elliot", "Captain Wentworth"),
    ("Louisa Musgrove", "Captain Benwick"),
]
HOUSES = {
    "Mr. Darcy": "Pemberley", "Mr. Bingley": "Netherfield", "Elizabeth Bennet": "Longbourn",
    "Lady Catherine": "Rosings", "Emma Woodhouse": "Hartfield", "Mr. Knightley": "Donwell Abbey",
    "Mr. Weston": "Randalls", "General Tilney": "Northanger Abbey", "Sir Thomas": "Mansfield Park",
    "Mr. Rushworth": "Sotherton", "Sir Walter": "Kellynch Hall", "Colonel Brandon": "Delaford",
}

OPPOSITES = [("hot", "cold"), ("good", "bad"), ("great", "small"), ("old", "young"), ("rich", "poor"),
             ("happy", "sad"), ("light", "dark"), ("long", "short"), ("high", "low"), ("early", "late"),
             ("strong", "weak"), ("quick", "slow"), ("open", "shut"), ("first", "last"), ("near", "far"),
             ("up", "down"), ("left", "right"), ("day", "night"), ("love", "hate"), ("full", "empty")]
COLOURS = {"snow": "white", "grass": "green", "the sky": "blue", "coal": "black", "blood": "red", "milk": "white",
           "the sea": "blue", "gold": "yellow", "a leaf": "green", "a rose": "red", "the sun": "yellow",
           "the night": "black"}
KINDS = {"rose": "flower", "lily": "flower", "dog": "animal", "horse": "animal", "cow": "animal", "fox": "animal",
         "cat": "animal", "oak": "tree", "elm": "tree", "apple": "fruit", "pear": "fruit", "hat": "garment",
         "coat": "garment", "robin": "bird", "owl": "bird", "swan": "bird"}
YOUNG = {"dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb", "hen": "chick",
         "swan": "cygnet", "goose": "gosling"}
LEGS = {"horse": "four", "dog": "four", "cat": "four", "cow": "four", "fox": "four", "hen": "two", "bird": "two",
        "man": "two", "swan": "two", "fish": "no", "fly": "six", "spider": "eight"}
ORDERS = {
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "month": ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
              "November", "December"],
    "season": ["spring", "summer", "autumn", "winter"],
}

NAMES = ["Anne", "Mary", "Jane", "Emma", "Henry", "Charles", "John", "Thomas", "William", "Edward", "George", "Lucy",
         "Fanny", "Maria", "Julia", "Harriet", "Frank", "James", "Louisa", "Catherine", "Isabella", "Eleanor",
         "Robert", "Edmund", "Elizabeth", "Lydia", "Kitty", "Marianne", "Elinor", "Margaret", "Charlotte", "Walter",
         "Frederick", "Sophia", "Susan", "Betsey", "Philip", "Richard", "Georgiana", "Caroline", "Agnes", "Albert",
         "Alice", "Alfred", "Amelia", "Andrew", "Annabella", "Arthur", "Augusta", "Barbara", "Beatrice", "Benjamin",
         "Bertha", "Cecilia", "Christopher", "Clara", "Constance", "Daniel", "David", "Dorothy", "Edgar", "Edith",
         "Ellen", "Emily", "Ernest", "Esther", "Eugene", "Felix", "Flora", "Florence", "Frances", "Francis", "Gerald",
         "Gilbert", "Grace", "Hannah", "Harold", "Helen", "Herbert", "Hugh", "Ida", "Jacob", "Jasper", "Josephine",
         "Joseph", "Judith", "Laura", "Laurence", "Leonard", "Lewis", "Lilian", "Mabel", "Mark", "Martha", "Martin",
         "Matilda", "Matthew", "Maurice", "Michael", "Miles", "Nancy", "Nathan", "Nicholas", "Nora", "Oliver", "Olivia",
         "Oscar", "Patrick", "Paul", "Penelope", "Peter", "Phoebe", "Priscilla", "Rachel", "Ralph", "Rebecca", "Roger",
         "Rosamund", "Rose", "Rupert", "Ruth", "Samuel", "Sarah", "Sebastian", "Simon", "Stephen", "Sylvia", "Teresa",
         "Theodore", "Timothy", "Tobias", "Ursula", "Victor", "Victoria", "Vincent", "Viola", "Virginia", "Winifred"]
# Names that no dialogue of the training set has in a question about what was said before.
HELD_OUT_NAMES = ["Harriet", "Edmund", "Susan", "Frederick", "Charlotte", "George"]
THINGS = ["dog", "cat", "horse", "book", "letter", "hat", "carriage", "ring", "pen", "chair", "rose", "key", "picture",
          "coat", "shawl"]
SHADES = ["red", "blue", "green", "white", "black", "yellow", "brown"]
PLACES = ["Bath", "London", "Highbury", "Lyme", "Meryton", "Portsmouth", "Kent", "Derbyshire", "Brighton", "Oxford",
          "Bristol", "York", "Weymouth", "Surrey", "Sussex", "Norfolk", "Exeter", "Windsor", "Dublin", "Richmond"]

# What the model cannot know: patterns, and the words that they take.
UNKNOWN = {
    "What is the capital of {}?": ["France", "Spain", "Italy", "Russia", "China", "Japan", "India", "Brazil",
                                   "Germany", "Egypt"],
    "Who invented the {}?": ["telephone", "train", "clock", "computer", "car", "lamp", "wheel", "aeroplane"],
    "How do I make {}?": ["bread", "soup", "a chair", "a website", "tea", "a cake", "money", "a house"],
    "Who is the king of {}?": ["France", "Spain", "Sweden", "Norway", "Denmark"],
    "How far is it to {}?": ["the moon", "London", "the sun", "Paris", "Rome"],
    "What will happen {}?": ["tomorrow", "next year", "to me", "to us", "in ten years"],
    "Write a program that {}.": ["sorts a list", "adds numbers", "prints my name", "plays chess"],
    "Explain {}.": ["gravity", "the law", "physics", "electricity", "chemistry", "the war"],
    "What time is it{}?": ["", " now", " in London", " in Paris"],
    "What is the weather{}?": ["", " today", " in London", " like", " tomorrow"],
}

STORY_BEASTS = ["fox", "dog", "cat", "horse", "swan", "owl", "hen", "cow", "sheep", "robin"]
STORY_PLACES = ["wood", "garden", "village", "park", "field"]
STORY_WISHES = ["a friend", "a warm bed", "a fine supper", "a new coat"]
STORY_ENDS = ["and was happy ever after", "and never was sad again", "and told all the neighbours of it"]
