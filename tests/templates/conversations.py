"""The conversations over which real templates are compared: CASES maps a label to a render context."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city <b>&</b> its \"mood\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
                "where": {"type": "array", "items": {"type": "object", "properties": {"lat": {"type": "number"}}}},
                "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "strict": {"type": ["boolean", "null"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}},
}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, id="call00001", name="get_weather"):
    return {"role": "tool", "content": content, "tool_call_id": id, "name": name}


def context(messages, prompt=True, **more):
    return {
        "messages": messages,
        "add_generation_prompt": prompt,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        **more,
    }


HELLO = [user("Hello, who are you?")]
TURNS = [user("One?"), assistant("Two."), user("Three?"), assistant("Four."), user("Five?")]
PARTS = [{"type": "text", "text": "Look at "}, {"type": "text", "text": "this."}]
SPECIAL = "\"quoted\" 'single' <|im_end|> </s> {{ not a tag }} {% raw %} \\n \\ \t tab\r\nline & <b>"
UNICODE = "Grüße, 你好, こんにちは, مرحبا, 🙂👩‍👩‍👧, e\u0301, \u2028 \u00a0 \u200b, İstanbul, ß"
DICT_CALL = [user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})])]
STRING_CALL = [
    user("Weather?"),
    assistant(None, tool_calls=[call("get_weather", '{"city": "Bern", "unit": "celsius"}')]),
    tool('{"temp": 7.5, "sky": "<grey>"}'),
    assistant("It is 7.5 degrees."),
    user("Thanks"),
]
TWO_CALLS = [
    system("Use tools."),
    user("Weather and time?"),
    assistant(
        "Let me look.",
        tool_calls=[call("get_weather", {"city": "Rome", "where": [{"lat": 1.5}], "strict": None, "ok": True}),
                    call("now", {}, "call00002")],
    ),
    tool("sunny"),
    tool("12:00", "call00002", "now"),
    assistant("Sunny at noon."),
    user("And tomorrow?"),
]
BARE_CALL = [
    user("Time?"),
    {"role": "assistant", "content": "", "tool_calls": [{"name": "now", "arguments": {}}]},
    {"role": "tool", "content": "noon"},
]
OBJECT_RESULT = [user("Weather?"), DICT_CALL[1], {"role": "tool", "content": {"temp": 3, "ok": False}, "name": "f"}]
THINKING = [
    user("2+2?"),
    assistant("<think>\nadd them\n</think>\n\n4", reasoning_content="add them"),
    user("3+3?"),
    assistant("6", reasoning_content="again", thinking="hm", reasoning="hm"),
    user("4+4?"),
]
DOCUMENTS = [{"title": "A", "text": "first", "contents": "first"}, {"title": "B", "text": "second", "contents": "x"}]

CASES = {
    "plain": context(HELLO),
    "plain, no prompt": context(HELLO, False),
    "system": context([system("Be brief."), *HELLO]),
    "turns": context(TURNS),
    "turns, no prompt": context([*TURNS, assistant("Six.")], False),
    "continued answer": context([*HELLO, assistant("I am")], False, continue_final_message=True),
    "system in the middle": context([*TURNS[:2], system("Now rhyme."), *HELLO]),
    "developer role": context([{"role": "developer", "content": "Be brief."}, *HELLO]),
    "unknown role": context([{"role": "robot", "content": "beep"}, *HELLO]),
    "two users in a row": context([user("a"), user("b")]),
    "starts with the assistant": context([assistant("Hi."), user("Hi.")]),
    "no messages": context([]),
    "tools": context(HELLO, tools=[WEATHER, CLOCK]),
    "tools and system": context([system("Be brief."), *HELLO], tools=[WEATHER]),
    "empty tools": context(HELLO, tools=[]),
    "null tools": context(HELLO, tools=None, documents=None),
    "tool without wrapper": context(HELLO, tools=[WEATHER["function"]]),
    "call with dict": context(DICT_CALL, False, tools=[WEATHER]),
    "call with string and result": context(STRING_CALL, tools=[WEATHER]),
    "two calls and results": context(TWO_CALLS, tools=[WEATHER, CLOCK]),
    "two calls without tools": context(TWO_CALLS),
    "call without wrapper": context(BARE_CALL, tools=[CLOCK]),
    "result is an object": context(OBJECT_RESULT, tools=[WEATHER]),
    "result last": context(TWO_CALLS[:5], tools=[WEATHER, CLOCK]),
    "empty content": context([system(""), user(""), assistant(""), user("")]),
    "null content": context([user("x"), assistant(None), user(None)]),
    "no content": context([{"role": "user"}]),
    "parts": context([user(PARTS)]),
    "parts everywhere": context([system(PARTS), user(PARTS), assistant(PARTS), user(PARTS)]),
    "image part": context([user([{"type": "image"}, {"type": "text", "text": "What is it?"}])]),
    "number as content": context([user(42), assistant(1.5), user(True)]),
    "dict as content": context([user({"a": [1, 2.0, None], "b": "x"})]),
    "unicode": context([system(UNICODE), user(UNICODE)]),
    "special characters": context([system(SPECIAL), user(SPECIAL), assistant(SPECIAL), user(SPECIAL)]),
    "spaces around": context([system("  a \n"), user("\n  b\t"), assistant(" c "), user("d\n\n")]),
    "thinking": context(THINKING),
    "thinking on": context(THINKING, enable_thinking=True, thinking=True, reasoning_effort="high"),
    "thinking off": context(THINKING, enable_thinking=False, thinking=False, reasoning_effort="low"),
    "thinking with calls": context(
        [*TWO_CALLS[:2], {**TWO_CALLS[2], "reasoning_content": "use both", "thinking": "both"}, *TWO_CALLS[3:5]],
        tools=[WEATHER, CLOCK], enable_thinking=True,
    ),
    "documents": context(HELLO, documents=DOCUMENTS),
    "dates and extras": context(
        [system("Be brief."), *HELLO], date_string="26 Jul 2024", custom_tools=[WEATHER], builtin_tools=["search"],
        tools_in_user_message=False, functions=[WEATHER["function"]], model_identity="You are X.", controls={"length": "short"},
    ),
    "undefined bos": {"messages": HELLO, "add_generation_prompt": True},
}
