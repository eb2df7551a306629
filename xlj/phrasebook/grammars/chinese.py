"""Chinese: no inflection, classifiers, aspect words, time and place before the verb."""

from functools import partial

from xlj.phrasebook.grammars.grammar import join, nameable
from xlj.phrasebook.grammars.lexicon import all_names, forms, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word
from xlj.phrasebook.world import QUALITIES

# noun, classifier, and 里 for the places that take it
NOUNS = forms(
    """
    老师 位; 医生 位; 学生 个; 农民 个; 工程师 位; 司机 位; 厨师 位; 作家 位; 歌手 位; 律师 位;
    记者 位; 护士 位; 画家 位; 孩子 个; 男人 个; 女人 个; 女孩 个; 男孩 个; 客人 位; 妈妈 位;
    爸爸 位; 哥哥 个; 姐姐 个; 朋友 个; 邻居 个; 叔叔 位; 阿姨 位; 奶奶 位; 爷爷 位; 狗 只; 猫 只;
    马 匹; 牛 头; 鸟 只; 鸡 只; 绵羊 只; 山羊 只; 兔子 只; 苹果 个; 橙子 个; 香蕉 根; 蛋糕 个;
    鸡蛋 个; 土豆 个; 西红柿 个; 胡萝卜 根; 面包 个; 米饭 碗; 鱼 条; 肉 块; 奶酪 块; 汤 碗; 蜂蜜 瓶;
    水 杯; 牛奶 杯; 茶 杯; 咖啡 杯; 果汁 杯; 书 本; 信 封; 报纸 份; 杂志 本; 故事 个; 报告 份;
    诗 首; 椅子 把; 桌子 张; 灯 盏; 床 张; 镜子 面; 箱子 个; 篮子 个; 钥匙 把; 手机 部; 包 个;
    杯子 个; 盘子 个; 钟 个; 照片 张; 礼物 件; 电脑 台; 球 个; 钢笔 支; 雨伞 把; 票 张; 瓶子 个;
    收音机 台; 相机 台; 地图 张; 花 朵; 刀 把; 门 扇; 窗户 扇; 衬衫 件; 连衣裙 条; 帽子 顶; 大衣 件;
    鞋 双; 裙子 条; 汽车 辆; 公共汽车 辆; 自行车 辆; 火车 列; 船 条; 学校 所 -; 市场 个 -;
    医院 家 -; 房子 座 里; 办公室 个 里; 车站 个 -; 农场 个 -; 花园 个 里; 厨房 个 里; 图书馆 座 里;
    餐馆 家 里; 酒店 家 里; 教堂 座 里; 博物馆 座 里; 村子 个 里; 城市 座 里; 银行 家 -; 商店 家 里;
    剧院 座 里; 工厂 家 里; 机场 个 -; 大学 所 -; 桥 座; 电影 部; 歌 首; 音乐 首; 英语 -; 德语 -;
    法语 -; 西班牙语 -; 斯瓦希里语 -; 土耳其语 -; 印地语 -; 汉语 -
    """
)
VERBS = table(
    """
    eat: 吃; cook: 煮; drink: 喝; read: 读; write: 写; buy: 买; sell: 卖; find: 找到; lose: 丢;
    see: 看见; open: 打开; close: 关上; wash: 洗; repair: 修理; clean: 打扫; carry: 搬; watch: 看;
    listen: 听; sing: 唱; learn: 学; speak: 说; help: 帮助; invite: 邀请; love: 爱; know: 认识;
    search: 找; use: 用; build: 建; draw: 画; hide: 藏; feed: 喂; sleep: 睡觉; work: 工作; play: 玩;
    dance: 跳舞; live: 住; wait: 等; smile: 微笑; study: 学习; laugh: 笑; cry: 哭; go: 去;
    return: 回; arrive: 到; come: 来; give: 给; send: 寄; show: 看; bring: 带来; have: 有;
    like: 喜欢; rain: 下雨; snow: 下雪; hot_weather: 热; cold_weather: 冷; exist: 有
    """
)
_OUTBURSTS = frozenset(("smile", "laugh", "cry", "sleep", "dance"))
_SPLIT = frozenset(("sleep", "dance"))  # 睡了觉: the aspect goes between verb and object
# '的': takes 的 before a noun; '是': a predicate between 是 and 的
ADJECTIVES = forms(
    """
    新; 旧; 大; 小; 漂亮 的; 贵 的; 便宜 的; 红色 是; 白色 是; 黑色 是; 绿色 是; 蓝色 是; 黄色 是;
    重 的; 干净 的; 脏 的; 年轻 的; 善良 的; 聪明 的; 有名 的; 富有 的; 贫穷 的; 强壮 的; 累 的;
    高兴 的; 难过 的; 忙 的; 紧张 的; 生气 的; 热 的; 冷 的; 新鲜 的; 甜 的; 好吃 的; 安静 的;
    长 的; 短 的; 有趣 的
    """,
    QUALITIES,
)
NAMES = all_names(
    """
    安娜 玛丽亚 萨拉 法特玛 艾莎 埃琳娜 朱莉娅 妮娜 劳拉 克拉拉 阿米娜 扎瓦迪 莱拉 普丽娅 米拉 梅 琳
    索菲娅 伊娃 露西娅 玛尔塔 奥尔加 尼玛 罗莎 诺拉 艾玛 莱娜 黛安娜 卡米拉 西塔 泽内普 蒂娜 保罗
    彼得 阿里 奥马尔 朱马 艾哈迈德 穆罕默德 拉维 阿琼 伟 汤姆 大卫 马丁 佩德罗 卡洛斯 哈米西 巴拉卡
    埃姆雷 扬 利奥 卡里姆 伊万 迭戈 费利克斯 丹尼尔 塞缪尔 维克多 亚当 西蒙 哈桑 优素福 科菲 米勒
    施密特 韦伯 杜邦 加西亚 洛佩斯 席尔瓦 卡亚 德米尔 夏尔马 库马尔 古普塔 辛格 王 张 陈 姆旺吉
    基马尼 穆希 罗西 诺瓦克 彼得罗夫 布朗 史密斯 巴黎 伦敦 柏林 马德里 罗马 莫斯科 伊斯坦布尔 安卡拉
    德里 孟买 北京 上海 内罗毕 蒙巴萨 多多马 拉各斯 东京 纽约 利马 维也纳 慕尼黑 汉堡 里昂 日内瓦
    巴塞罗那 奥斯陆 雅典 里斯本 华沙 布拉格 新加坡 多伦多 悉尼 德国 法国 西班牙 土耳其 印度 中国
    肯尼亚 坦桑尼亚 意大利 日本 巴西 墨西哥 埃及 俄罗斯 加拿大 葡萄牙 谷歌 丰田 三星 亚马逊 微软
    联合国儿童基金会 联合国教科文组织 红十字会 世界_银行
    """
)
TIMES = time_words(
    """
    现在/ADV; 今天/NOUN; 每天/ADV; 每周/ADV; 早上/NOUN; 晚上/NOUN; 昨天/NOUN; 上周/NOUN;
    上个月/NOUN; 今天/NOUN 早上/NOUN; 明天/NOUN; 下周/NOUN; 下个月/NOUN; 今晚/NOUN
    """,
    "{}/NOUN",
    "星期一 星期二 星期三 星期四 星期五 星期六 星期天",
    "{}/NUM 点/NOUN",
    "一 两 三 四 五 六 七 八 九 十 十一 十二",
)
NUMBERS = "两 三 四 五 六 七 八 九 十".split()
PRONOUNS = table("i: 我; you: 你; he: 他; she: 她; we: 我们; they: 他们")
LINKS = {"and": ("，", "PUNCT"), "but": ("但是", "CCONJ"), "because": ("因为", "SCONJ")}


def noun_phrase(p: Participant, role: str, bare: bool = False) -> list[Word]:
    """A participant; `bare` leaves out the determiner that an unmodified noun can do without."""
    noun, det = role + ".noun", role + ".det"
    if p.kind != "noun":
        name = nameable(p, role, NAMES, ("谁", "什么"), PRONOUNS)
        if p.surname:
            name.insert(1, word("·", "PUNCT", role + ".dot", entity="I-PER"))
        return name
    form, classifier = NOUNS[p.concept][:2]
    if p.field == "language":
        return [word(form, "PROPN", noun)]
    words: list[Word] = []
    if p.owner:
        words = noun_phrase(p.owner, role + ".owner")
        family = p.field == "kin" and p.concept not in ("friend", "neighbour")
        if not family or p.owner.kind != "pronoun" or p.owner.plural:  # 我妈妈 is without 的
            words.append(word("的", "PART", role + ".owner.case"))
    elif p.count:
        slot = role + ".count"
        words = [word(NUMBERS[p.count - 2], "NUM", slot), word(classifier, "NOUN", slot)]
    elif not p.mass or p.determiner == "this":
        first = {"this": "这", "the": "那", "a": "一"}.get(p.determiner, "")
        if bare and (p.determiner == "a" or p.determiner == "the" and not p.adjective):
            first = ""
        elif p.field == "place" and p.determiner == "the":
            first = ""
        if first:
            words = [word(first, "NUM" if first == "一" else "DET", det)]
            words.append(word("些" if p.plural else classifier, "NOUN", det))
    if p.adjective:
        adjective, *kind = ADJECTIVES[p.adjective]
        words.append(word(adjective, "ADJ", role + ".adjective"))
        if kind:
            words.append(word("的", "PART", role + ".adjective"))
    people = p.human and p.plural and p.determiner == "the" and not words
    return [*words, word(form + "们" if people else form, "NOUN", noun)]


def _place(clause: Clause, n: str) -> list[Word]:
    """The place with its preposition, and 里 after the nouns that take it."""
    place, role = clause.place, n + ".place"
    if place is None:
        return []
    case = role + ".case"
    prepositions = {"at": "在", "from": "从", "to": ""}
    words = [word(prepositions[clause.relation], "ADP", case)] if clause.relation != "to" else []
    if place.kind == "unknown":
        return [*words, word("哪里", "PRON", role + ".noun")]
    words += noun_phrase(place, role)
    if place.kind == "noun" and clause.relation == "at" and NOUNS[place.concept][2] == "里":
        words.append(word("里", "ADP", case))
    return words


def _quality(clause: Clause, n: str) -> list[Word]:
    """An adjective as a predicate: 很 stands where other languages have a copula."""
    tense, weather = n + ".tense", clause.attribute is None
    form, *kind = VERBS[clause.predicate] if weather else ADJECTIVES[str(clause.attribute)]
    adjective = word(form, "ADJ", n + ".event")
    words = [word("不", "ADV", n + ".negation")] * clause.negative
    if clause.tense == "future":
        words.append(word("会", "AUX", tense))
    if kind == ["是"]:
        return [*words, word("是", "AUX", tense), adjective, word("的", "PART", n + ".event")]
    if clause.very:
        words.append(word("非常", "ADV", n + ".degree"))
    elif not clause.negative and not clause.question:
        words.append(word("很", "ADV", tense))
    return [*words, adjective]


def _verb(clause: Clause, n: str, place: list[Word], given: list[Word]) -> list[Word]:
    """The verb with what goes before it: negation, aspect, place, recipient; then its aspect."""
    predicate, tense, event = clause.predicate, n + ".tense", n + ".event"
    no, yet = ([word(form, "ADV", n + ".negation")] * clause.negative for form in "不没")
    front, after = list[Word](), list[Word]()
    at_place = bool(place) and place[0].form == "在"
    if clause.modal:
        modal = "想" if clause.modal == "want" else "会" if predicate == "speak" else "能"
        front = [*no, word(modal, "AUX", n + ".modal")]
    elif predicate in ("have", "exist"):
        front = yet
    elif clause.tense == "now":
        # The preposition 在 says half of 正在
        aspect = "正" * (not clause.negative) + "在" * (not at_place)
        front = [*yet, *[word(aspect, "ADV", tense)] * bool(aspect)]
    elif clause.tense == "future":
        front = [*no, word("会", "AUX", tense)]
    elif clause.negative:
        front = yet if clause.tense == "past" and predicate != "be" else no
    elif clause.tense == "past":
        moves = clause.relation != "at"
        if clause.object or clause.subject is None or moves or predicate in _OUTBURSTS:
            after = [word("了", "PART", tense)]
        elif not clause.time and predicate not in ("be", "live"):
            after = [word("过", "PART", tense)]
    if predicate == "be":
        return [*front, *place]
    verb = word(VERBS[predicate][0], "VERB", event)
    if predicate == "live":
        return [*front, verb, *place]
    if clause.relation == "to":
        return [*front, verb, *after, *place]
    if predicate == "give":
        return [*front, verb, *after, *given[1:]]
    if predicate in _SPLIT and after:
        first, second = (word(form, "VERB", event) for form in verb.form)
        return [*front, *place, first, *after, second]
    return [*front, *place, *given, verb, *after]


def _clause(clause: Clause, n: str) -> list[Word]:
    subject, predicate, role = clause.subject, clause.predicate, n + ".subject"
    time = TIMES[clause.time](n) if clause.time else []
    place = _place(clause, n)
    if subject is None:
        place = place[1:]  # the place is the topic of the weather
        weather = predicate.endswith("_weather")
        body = _quality(clause, n) if weather else _verb(clause, n, [], [])
        words = [*time, *place, *body]
    elif predicate == "exist":
        thing = noun_phrase(subject, role, clause.negative)
        words = [*time, *place[1:], *_verb(clause, n, [], []), *thing]
    else:
        front = noun_phrase(subject, role, subject.human)
        words = [*time, *front] if clause.time_first else [*front, *time]
        if clause.attribute:
            words += _quality(clause, n)
        elif clause.complement:
            words += [word("不", "ADV", n + ".negation")] * clause.negative
            words.append(word("是", "AUX", n + ".tense"))
            bare = clause.negative or not clause.complement.adjective
            words += noun_phrase(clause.complement, n + ".complement", bare)
        else:
            given: list[Word] = []
            if clause.recipient:
                given = [word("给", "ADP", n + ".recipient.case")]
                given += noun_phrase(clause.recipient, n + ".recipient", True)
            words += _verb(clause, n, place, given)
            if clause.object:
                bare = clause.negative and clause.object.determiner == "a"
                words += noun_phrase(clause.object, n + ".object", bare)
    if clause.question == "polar":
        words.append(word("吗", "PART", "question"))
    return words


clauses = partial(
    join, clause=_clause, links=LINKS, commas=("but", "because"), marks=("。", "？", "，")
)
