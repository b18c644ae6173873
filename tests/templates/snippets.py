"""Small templates, one feature each, whose jinja2 output is committed as golden.json (see make_golden.py).

CONTEXT is what all of them see. Snippets that print addresses or random values are left out on purpose.
"""

CONTEXT = {
    "s": "Hello World",
    "u": "Grüße 你好 🙂 İß Σας ΟΔΟΣ",
    "ws": " \t a  b\n c \u00a0",
    "lines": "a\nb\r\nc\u2028d\n",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "big": 9007199254740993,
    "t": True,
    "nul": None,
    "l": [3, 1, 2],
    "e": [],
    "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "items": "shadow", "nested": {"x": [1, {"y": "z"}]}},
    "people": [
        {"name": "Ada", "age": 36, "city": "London"},
        {"name": "bob", "age": 25, "city": "paris"},
        {"name": "Cy", "age": 36, "city": "Paris"},
        {"name": "dee", "city": "Rome"},
    ],
    "html": "<a href=\"x\">'&'</a>",
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
}

# One expression each: rendered as {{ expression }}.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
-7.5 // 2
-7.5 % 2
7.5 % -2
7 / 2
6 / 2
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
1e3
1.5e-7
1e16
123456789012345678.0
0.1 + 0.2
1e22
1.0
100000000000000000000.0
0.0001
0.00001
5e-324
1_000
0x1f
0b101
0o17
9223372036854775807
-9223372036854775807 - 1
10 // 0
1 / 0
1.0 / 0
5 % 0
0 ** -1
true + 1
true + true
-true
+true
+f
- - 5
not not 1
not 0
'a' + 'b'
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ 1.0 ~ true
'ab' * 3
3 * 'ab'
[1] * 2
(1, 2) * 2
'a' * -1
[1] + [2]
(1,) + (2,)
[1] + (2,)
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 == 2.0 != 3
1 == 1.0
1 == true
'1' == 1
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 2) < (1, 2, 0)
[1] == (1,)
none == none
none < 1
{'a': 1} == {'a': 1.0}
1 in [1, 2]
'x' in 'xyz'
'' in ''
1 in 'abc'
'b' in d
'zz' not in d
3 not in l
2 in range(3)
none in mixed
1 if t
1 if false
'yes' if t else 'no'
'a' if false else 'b' if false else 'c'
(1 if f else 2) + 1
s[0]
s[-1]
s[100]
s[1:4]
s[::-1]
s[-3:]
s[:-3]
s[::2]
s[10:2:-3]
u[7]
u[-3]
u[3:9]
u[::-1]
u|length
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[5:]
l[-100:100]
l[::0]
l['a']
d.b
d['a']
d.missing
d.missing.more
d['missing']['more']
d.items
d['items']
d.nested.x[1].y
d.nested.x.0
missing
missing.attr
missing[0]
missing()
missing + 1
1 + missing
missing ~ 'x'
missing == other
missing == none
missing|length
missing|list
missing is defined
missing < 1
-missing
not missing
missing or 'x'
missing and 'x'
'x' in missing
missing in [1]
s.missing
n.missing
none.x
()
(1,)
(1, 2)
1, 2
[]
{}
{'a': 1, 'b': [1, 2], 3: none, (1, 2): 'x'}
{1: 'a', true: 'b', 1.0: 'c'}
{[1]: 2}
mixed
['it\'s', "q\"", '\n\t\\', 'é', '\x00\x1f\x7f', "both ' and \""]
['\u200b', '\xa0', '🙂']
[1.0, 1e100, -0.0]
'a' 'b'
'\x41\u00e9\U0001F642\101\q'
'\
x'
range(5)
range(2, 5)
range(10, 0, -3)
range(5)|list
range(0)|list
range(10)[2:8:3]|list
range(10)[-1]
range(3)|length
range(100001)
range('a')
range(1, 2, 0)
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([['a', 1]])
namespace(a=1).a
namespace(a=1).b
namespace(a=1)['a']
s.upper()
u.upper()
u.lower()
u.title()
u.capitalize()
u.swapcase()
u.casefold()
'ὈΔΥΣΣΕΎΣ'.lower()
'they\'re bill\'s friends'.title()
'ßa'.capitalize()
ws.strip() ~ '|'
'|' ~ ws.lstrip()
ws.rstrip() ~ '|'
'xxabcxx'.strip('x')
'abcabc'.rstrip('bc')
'abc'.lstrip('cab')
ws.split()
ws.split(none, 1)
ws.rsplit(none, 1)
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'a,b'.split(',', maxsplit=1)
'a--b--c'.split('--')
''.split()
''.split(',')
'abc'.split('')
lines.splitlines()
lines.splitlines(true)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('x')
'abc'.rpartition('x')
'aXbX'.replace('X', '--')
'aXbX'.replace('X', '-', 1)
'abc'.replace('', '.')
'abc'.replace('', '.', 2)
'abcabc'.find('c')
'abcabc'.rfind('c')
'abcabc'.find('c', 3)
'abcabc'.find('c', 3, 5)
'abc'.find('')
'abc'.find('', 5)
u.find('🙂')
'abc'.index('z')
'banana'.count('an')
'banana'.count('')
'banana'.count('a', 2)
'banana'.startswith('ban')
'banana'.startswith(('x', 'b'))
'banana'.endswith('na', 0, 5)
'banana'.startswith('an', 1)
'banana'.startswith(1)
'banana'.removeprefix('ba')
'banana'.removesuffix('na')
', '.join(['a', 'b'])
', '.join([1])
'-'.join('abc')
'-'.join(d)
'7'.zfill(3)
'-7'.zfill(4)
'a'.center(5) ~ '|'
'ab'.center(5, '*')
'a'.center(4, '*')
'a'.ljust(3, '.') ~ '|'
'a'.rjust(3)
'a\tb'.expandtabs()
'a\tbc\td'.expandtabs(4)
'12'.isdigit()
'1²'.isdigit()
'1²'.isdecimal()
'½'.isnumeric()
'ab1'.isalnum()
'ab'.isalpha()
'a b'.isalpha()
''.isalpha()
'AB'.isupper()
'ab1'.islower()
'Ab Cd'.istitle()
' \n'.isspace()
'aé'.isascii()
'a\n'.isprintable()
''.isprintable()
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a} {b[0]} {c.x}'.format(a=1, b=[2], c={'x': 3})
'{a[x]}'.format(a={'x': 3})
'{{}} {}'.format(1)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 3, 'x')
'{:05d} {:+d} {: d} {:x} {:#X} {:b} {:o}'.format(42, 42, 42, 255, 255, 5, 8)
'{:.2f} {:8.3f} {:e} {:g} {:.0f} {:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 2.5, 0.25)
'{:,} {:_} {:,.2f}'.format(1234567, 1234567, 1234567.891)
'{:.3} {!r} {!s}'.format('abcdef', 'q', 1)
'{:{}}|'.format('x', 5)
'{:5}|{:5}|'.format('a', 1)
'{} {}'.format(1)
'{0} {}'.format(1, 2)
'{x}'.format(1)
'{'.format(1)
'}'.format(1)
'{:d}'.format('a')
'{:.3}'.format(3.14159)
'{:10.4}|'.format(1234567.0)
'{:c}'.format(65)
'{}'.format(none)
'{}'.format([1, 'a'])
'%s %d %r' % ('a', 5, 'b')
'%s' % 'x'
'%s' % [1, 2]
'%s' % none
'%(a)s %(b)05.1f' % {'a': 1, 'b': 2.25}
'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)
'%x %X %o %#x' % (255, 255, 8, 255)
'%.2f %e %g %5.1f|%-8.2f|' % (3.14159, 1234.5, 0.00001, 2.25, 1.5)
'%c%c' % ('a', 98)
'%%' % ()
'%d' % 3.9
'%d' % 'a'
'%s' % (1, 2)
'%s %s' % 1
'%z' % 1
'%.3s|' % 'abcdef'
'%5s|%-5s|' % ('a', 'b')
'%*d' % (5, 42)
'abc' % 1
'abc' % {}
'%i' % true
'%s' % missing
'%d' % missing
d.keys()
d.values()
d.items()|list
dict(a=1).items()
dict(a=1).get('a')
dict(a=1).get('b')
dict(a=1).get('b', 2)
dict(a=1).copy()
dict(a=1).pop('a')
dict(a=1).update({'b': 2})
dict(a=1).setdefault('b', 2)
d.keys()|list
d.keys()[0]
d.keys()|length
d.items() is sequence
l.append(4)
l.pop()
l.sort()
l.reverse()
l.insert(0, 1)
l.extend([1])
l.index(2)
l.index(9)
l.count(1)
l.copy()
(1, 2, 1).count(1)
(1, 2).index(2)
'a'.join(l)
2.0.is_integer()
f.is_integer()
''.__class__
''.__class__.__mro__
{}.__class__.__base__
d.__init__
d.get.__self__
l.append
range.__class__
'{0.__class__}'.format(1)
'{0.__class__.__mro__}'.format(1)
s|upper
s|lower
'hello wORLD'|capitalize
'hello-big (world) it\'s'|title
u|title
ws|trim ~ '|'
'xxaxx'|trim('x')
s|replace('o', '0')
s|replace('l', 'L', 2)
12|replace(1, 'x')
s|length
d|length
n|length
l|count
l|first
l|last
e|first
e|last
s|first
s|last
d|first
l|sort
l|sort(reverse=true)
['b', 'A', 'c']|sort
['b', 'A', 'c']|sort(case_sensitive=true)
people|sort(attribute='name')|map(attribute='name')|join(',')
people[:3]|sort(attribute='age,name')|map(attribute='name')|join(',')
people|sort(attribute='age')
mixed|sort
l|reverse|list
s|reverse
(1, 2)|reverse|list
l|join
l|join('-')
people|join(', ', attribute='name')
s|join('.')
l|sum
people[:3]|sum(attribute='age')
l|sum(start=10)
[[1], [2]]|sum(start=[])
['a']|sum
l|max
l|min
e|max
['b', 'A']|max
people[:3]|max(attribute='age')
l|list
s|list
d|list
n|list
d|items|list
missing|items|list
n|items|list
dict(b=1, a=2)|dictsort
dict(b=1, a=2)|dictsort(by='value')
dict(b=1, A=2)|dictsort(true)
dict(b=1, a=2)|dictsort(reverse=true)
people|map(attribute='name')|list
people|map(attribute='age', default=0)|list
people|map('length')|list
l|map('string')|join('+')
['a', 'b']|map('upper')|list
['a']|map('replace', 'a', 'b')|list
l|map('nosuchfilter')|list
none|map('upper')|list
l|select('odd')|list
l|select('gt', 1)|list
mixed|select|list
mixed|select('string')|list
l|reject('odd')|list
people|selectattr('age')|map(attribute='name')|list
people|selectattr('age', 'equalto', 36)|map(attribute='name')|list
people|selectattr('age', 'defined')|list|length
people|rejectattr('age', 'defined')|map(attribute='name')|list
people|selectattr('city', 'in', ['Rome', 'London'])|map(attribute='name')|list
(people|selectattr('name', 'equalto', 'nobody')) is truthy
('x' if people|selectattr('name', 'equalto', 'nobody') else 'y')
(people|selectattr('age', 'defined'))|length
l|select('nosuch')|list
[1, 1.0, 'a', 'A', true]|unique|list
['a', 'A']|unique(case_sensitive=true)|list
people|unique(attribute='city')|map(attribute='name')|list
people|groupby('city')|list
people|groupby('age', default=0)|map('first')|list
people|groupby('city', case_sensitive=true)|map(attribute='grouper')|list
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 'x')|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3, 4, 5]|slice(3, 'x')|list
missing|default('d')
''|default('d')
''|default('d', true)
none|default('d')
none|d('x', boolean=true)
missing|d
'42'|int
'42.9'|int
'x'|int
'x'|int(default=5)
'0x1f'|int(base=16)
'ff'|int(0, 16)
' 4_2 '|int
none|int
4.9|int
-4.9|int
true|int
missing|int
[1]|int
'1e3'|int
'3.5'|float
'x'|float
'x'|float(1.5)
'1e5'|float
'inf'|float
'nan'|float
none|float
5|float
-5|abs
-5.5|abs
'a'|abs
2.5|round
3.5|round
2.675|round(2)
42.55|round(1, 'floor')
42.45|round(1, 'ceil')
42|round
1234|round(-2)
1250|round(-2)
1234.5|round(-2)
2.5|round|int
2.4|round(method='bad')
1.005|round(2)
42|string
none|string
[1, 'a']|string
html|escape
html|e|e
html|safe
html|forceescape
(html|safe) + '<b>'
'<b>' + (html|escape)
('<b>'|safe) ~ '<i>'
['<b>'|safe]
'<b>'|safe|upper
'<b>'|e|length
'x'|center(5) ~ '|'
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, blank=true)
'a\nb'|indent('--')
'a\nb\n'|indent(2) ~ '|'
5|indent
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar'|truncate(2)
'one two-three'|wordcount
'<p>a <b>b</b>  c</p> &amp; <!-- x -->d'|striptags
'a b&c/d?é'|urlencode
{'a b': 'c/d', 'e': 1}|urlencode
[['a', 'b']]|urlencode
13000|filesizeformat
1|filesizeformat
999|filesizeformat
1000000|filesizeformat(true)
'%s-%s'|format('a', 1)
'%(x)s'|format(x=3)
'%s'|format
d|attr('b')
s|attr('upper') is callable
d|tojson
mixed|tojson
u|tojson
u|tojson(ensure_ascii=true)
html|tojson
'\x00\x1f\x7f"\\\b\f\n\r\t/'|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='--')
e|tojson(indent=4)
{}|tojson(indent=4)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(separators=[',', ':'], indent=1)
d|tojson(true)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1, 2): 3}|tojson
(1, 2)|tojson
1.0|tojson
1e100|tojson
('inf'|float)|tojson
('nan'|float)|tojson
missing|tojson
range(3)|tojson
d.keys()|tojson
-1|abs
'a,b'|upper|lower|length
n is odd
n is even
f is odd
n is divisibleby 7
n is divisibleby(3)
n is defined
n is not defined
n is undefined
nul is none
n is none
t is boolean
1 is boolean
t is true
1 is true
false is false
n is integer
t is integer
f is float
n is number
t is number
'a' is number
s is string
l is string
'abc' is lower
'ABC' is upper
1 is lower
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
n is sequence
missing is sequence
l is iterable
n is iterable
s is iterable
range is callable
s is callable
s.upper is callable
missing is callable
1 is sameas 1
t is sameas true
1 is sameas true
nul is sameas none
(s|escape) is escaped
1 is in [1, 2]
1 is not in [1, 2]
1 is eq 1
1 is == 1
1 is equalto 1.0
1 is ne 2
2 is gt 1
2 is greaterthan 1
1 is lt 2
1 is le 1
2 is ge 3
'upper' is filter
'nosuch' is filter
'odd' is test
n is nosuchtest
n is odd and t
n is odd is true
not n is even
n|nosuchfilter
t if t else n|nosuchfilter
n is string or n is number and not false
cycler('a', 'b').next()
cycler()
joiner(',')()
lipsum is defined
raise_exception('boom')
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S %j %a %b')
strftime_now('%%')
strftime_now('')
loop
true
True
None
none
false ~ False
[True, False, None]
1 if
1 +
(1
[1, 2
{'a' 1}
'abc
a b
1 2
x = 1
s[1
s.
s|
s is
!x
1 == == 2
foo(a=1, 2)
s.split(x=1)
s.upper(1)
s|upper(1)
s|nosuch.thing
range(1, 2, 3, 4)
range(*[1, 4])|list
dict(**{'a': 1})
dict(a=1, **{'b': 2})
dict(a=1, **{'a': 2})
range(*5)
l[0, 1]
d[[1]]
l[missing]
l[1.0]
l[true]
s['upper']()
n ()
[1, 2,]
{'a': 1,}
(1, 2,)
range(2,)|list
""".strip("\n").split("\n")

# Whole templates.
TEMPLATES = [
    "plain text",
    "line\n",
    "two lines\n\n",
    "crlf\r\nand\rcr\r\n",
    "{# comment #}x",
    "a {#- c -#} b",
    "  {# c #}\nx",
    "a\n  {#+ c #}\nb",
    "{% if true %}\nyes\n{% endif %}\n",
    "  {% if true %}\n  yes\n  {% endif %}\nend",
    "  {%+ if true %}\n  yes\n  {%+ endif %}\nend",
    "a\n  {%- if true %}\n b\n  {%- endif %}\nc",
    "a {%- if true -%}  b  {%- endif -%} c",
    "{% if true +%}\nx{% endif +%}\ny",
    "{{ 1 }}\n{{ 2 }}\n",
    "  {{ 1 }}  \n",
    " a {{- 1 -}} b ",
    "a \n {{- 1 }} \n b",
    "{{+ 1 }}",
    "x {%- raw %} {{ y }} {% endraw %} z",
    "{% raw %}{{ a }}{% b %}{# c #}{% endraw %}",
    "{% raw -%}   a   {%- endraw %}|",
    "  {% raw %}\na\n  {% endraw %}\nb",
    "{% raw %}never ends",
    "{# never ends",
    "{{ never",
    "{% if x",
    "{% if true %}",
    "{% endif %}",
    "{% else %}",
    "{% nosuch %}",
    "{% for x in %}{% endfor %}",
    "{% for in l %}{% endfor %}",
    "{% set %}",
    "{% set true = 1 %}",
    "{% set x.y = 1 %}",
    "{% set 1 = 1 %}",
    "{% for loop in l %}{% endfor %}",
    "{% break %}",
    "{% macro m() %}{% break %}{% endmacro %}",
    "{}{ }{%",
    "{ { } } %} }} #}",
    "{{ '}}' }}",
    "{{ {'a': {'b': 1}}['a'] }}",
    "{{ {'a':{}}}}",
    "{{ '{{ x }}' }}",
    "{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}",
    "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if n: %}x{% endif %}",
    "{% if n is string %}{{ n|nosuch }}{% endif %}ok",
    "{% if true %}{{ n|nosuch }}{% endif %}",
    "{% if false %}{% for x in l %}{{ x|nosuch }}{% endfor %}{% endif %}",
    "{% for x in e %}{{ x|nosuch }}{% endfor %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in e %}x{% else %}empty{% endfor %}",
    "{% for x in l %}x{% else %}empty{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else after break{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% set ns = namespace(last=0) %}{% for x in [1, 1, 2] if x != ns.last %}{{ x }}{% set ns.last = x %}{% endfor %}",
    "{% for x in l if loop.index > 1 %}{{ x }}{% endfor %}",
    "{% for k, v in dict(a=1, b=2).items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for c in 'aé🙂' %}[{{ c }}]{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }} {% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for x in missing %}x{% else %}nothing{% endfor %}",
    "{% for x in missing.y %}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.depth }}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for node in tree recursive %}[{{ node.v }}@{{ loop.depth }}{{ loop(node.c) }}]{% endfor %}",
    "{% for x in l %}{{ loop(x) }}{% endfor %}",
    "{% for x in l|sort %}{{ x }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l -%}\n {{ x }}\n{%- endfor %}",
    "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set ns = namespace(a=1, b='x') %}{{ ns }}",
    "{% set ns = {} %}{% set ns.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set (a, b) = l[:2] %}{{ a }}{{ b }}",
    "{% set a, b = l %}",
    "{% set x %}a{{ n }}{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 5 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{{ x is defined }}{% set x = 1 %}{{ x is defined }}",
    "{% for i in [1] %}{% set inner = 1 %}{% endfor %}{{ inner is defined }}",
    "{{ loop is defined }}{% for x in [1] %}{{ loop is defined }}{% endfor %}{{ x is defined }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='z') }} {{ m(b=1, a=2) }}",
    "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a, b) %}{{ b }}{% endmacro %}{{ m.name }}{{ m(*[1, 2]) }}{{ m(**{'a': 1, 'b': 3}) }}",
    "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% macro m() %}{{ m }}{% endmacro %}{{ m() is string }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% macro m() %}  spaced  {% endmacro %}{{ m()|trim }}|{{ m()|length }}",
    "{% macro m(x) %}{% for i in x %}{{ i }}{{ loop.last }}{% endfor %}{% endmacro %}{% for q in [1] %}{{ m(l) }}{% endfor %}",
    "{% macro m(a, a2=1, b) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body{{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% call s %}{% endcall %}",
    "{% call missing() %}{% endcall %}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aXa{% endfilter %}",
    "{% filter nosuch %}{% endfilter %}",
    "{% print 1, 'a' %}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% generation %}{% set gx = 1 %}{% endgeneration %}{{ gx is defined }}",
    "{% set items = l|map('string') %}{{ items|join }}{{ items|join }}",
    "{% set g = l|select %}{{ g|first }}{{ g|list }}",
    "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
    "{% for g in people|groupby('city') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}",
    "{% for city, who in people|groupby('city') %}{{ city }}:{{ who|map(attribute='name')|join(',') }} {% endfor %}",
    "{% for row in range(5)|batch(2) %}{{ row }}{% endfor %}",
    "{% if l %}{% if e %}x{% else %}y{% endif %}{% endif %}",
    "{{ s }}{{ n }}{{ f }}{{ t }}{{ nul }}{{ l }}{{ d }}",
    "{% set messages = [{'role': 'user', 'content': 'x'}] %}{% for m in messages %}{{ m['role'] }}{{ m.content }}{% endfor %}",
    "{% set x = namespace(m=none) %}{% macro a() %}A{{ n }}{% endmacro %}{% set x.m = a %}{{ x.m() }}",
    "{% for x in l %}{% filter upper %}{% if x == 1 %}one{% endif %}{{ x }}{% endfilter %}{% endfor %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% do l.append(1) %}",
    "{% set _ = d.update({'x': 1}) %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ range.__globals__ }}",
    "{{ (s|attr('__class__'))|attr('__mro__') }}",
    "{% for c in [].__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ namespace.__init__ }}",
    "{% set x = ''.format.__self__ %}{{ x }}",
]
